"""A step, for all layers: what the kernels read on the device, and what decides which of them are launched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.api.attention import BatchView
from core.api.facets import StepShape


@dataclass(frozen=True, slots=True)
class TritonPlan:
    """One step. Nothing is copied from the batch: its own tensors are what the kernels read.

    Attributes:
        tables, slots, starts, lengths: As in `BatchView`, on the device.
        prompts: Whether some row has several tokens.
        longest: Most tokens in the cache of a row with one token; 0 where there is none.
    """

    tables: Tensor
    slots: Tensor
    starts: Tensor
    lengths: Tensor
    prompts: bool
    longest: int


def plan_of(batch: BatchView) -> TritonPlan:
    """Return the plan of a step."""
    counts = np.diff(batch.query_starts)
    single = batch.seq_lens[counts == 1]
    starts, lengths = batch.on_device()
    return TritonPlan(
        batch.block_tables,
        batch.slots,
        starts,
        lengths,
        prompts=bool((counts > 1).any()),
        longest=int(single.max()) if len(single) else 0,
    )


def fixed_plan(shape: StepShape, block_size: int, device: torch.device) -> TritonPlan:
    """Return a plan in memory of its own for steps of this shape, which `refresh` fills."""
    rows = shape.num_rows
    return TritonPlan(
        torch.zeros(rows, -(-shape.max_seq_len // block_size), dtype=torch.int32, device=device),
        torch.zeros(rows, dtype=torch.int64, device=device),
        torch.arange(rows + 1, dtype=torch.int32, device=device),
        torch.ones(rows, dtype=torch.int32, device=device),
        prompts=False,
        longest=shape.max_seq_len,
    )


def refresh(plan: TritonPlan, batch: BatchView) -> None:
    """Fill a fixed plan for a batch of its shape."""
    plan.tables.copy_(batch.block_tables)
    plan.slots.copy_(batch.slots)
    plan.lengths.copy_(batch.on_device()[1])
