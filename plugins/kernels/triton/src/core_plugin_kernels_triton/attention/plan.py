"""A step, for all layers: what the kernels read on the device, and what decides which of them are launched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.api.attention import BatchView
from core.api.steps import StepShape


class Work(NamedTuple):
    """Work of a step for layers that compute rows of few tokens in splits.

    Attributes:
        many: Whether some row has more.
        queries: Most tokens of the others in the step; 0 where there is none.
        longest: Most tokens of these rows in the cache.
    """

    many: bool
    queries: int
    longest: int


@dataclass(frozen=True, slots=True)
class TritonPlan:
    """One step. Nothing is copied from the batch: its own tensors are what the kernels read.

    Attributes:
        tables, slots, starts, lengths: As in `BatchView`, on the device.
        counts, seq_lens: `(rows,)` tokens of each row in the step and in the cache, on the host.
        shape: Of a plan for graphs of any number of tokens a row: the host knows neither; else None.
    """

    tables: Tensor
    slots: Tensor
    starts: Tensor
    lengths: Tensor
    counts: np.ndarray
    seq_lens: np.ndarray
    shape: StepShape | None = None
    _work: dict[int, Work] = field(default_factory=dict)

    @property
    def firsts(self) -> np.ndarray:
        """The first token of each row in the step, on the host."""
        return np.cumsum(self.counts) - self.counts

    def work(self, few: int) -> Work:
        """Return what there is to do where rows of up to `few` tokens are computed in splits."""
        if self.shape is not None:
            most = self.shape.max_query_len
            return Work(most > few, min(few, most), self.shape.max_seq_len)
        if few not in self._work:
            short = (self.counts > 0) & (self.counts <= few)
            queries, longest = self.counts[short].max(initial=0), self.seq_lens[short].max(initial=0)
            self._work[few] = Work(bool((self.counts > few).any()), int(queries), int(longest))
        return self._work[few]


def plan_of(batch: BatchView) -> TritonPlan:
    """Return the plan of a step."""
    starts, lengths = batch.on_device()
    counts = np.diff(batch.query_starts)
    return TritonPlan(batch.block_tables, batch.slots, starts, lengths, counts, batch.seq_lens)


def fixed_plan(shape: StepShape, block_size: int, device: torch.device) -> TritonPlan:
    """Return a plan in memory of its own for steps of this shape, which `refresh` fills."""
    rows = shape.num_rows
    return TritonPlan(
        torch.zeros(rows, -(-shape.max_seq_len // block_size), dtype=torch.int32, device=device),
        torch.zeros(shape.num_tokens, dtype=torch.int64, device=device),
        torch.arange(rows + 1, dtype=torch.int32, device=device),
        torch.ones(rows, dtype=torch.int32, device=device),
        np.ones(rows, dtype=np.int32),
        np.full(rows, shape.max_seq_len, dtype=np.int32),
        shape if shape.max_query_len > 1 else None,
    )


def refresh(plan: TritonPlan, batch: BatchView) -> None:
    """Fill a fixed plan for a batch of its shape."""
    starts, lengths = batch.on_device()
    plan.tables.copy_(batch.block_tables)
    plan.slots.copy_(batch.slots)
    plan.lengths.copy_(lengths)
    if plan.shape is not None:
        plan.starts.copy_(starts)
