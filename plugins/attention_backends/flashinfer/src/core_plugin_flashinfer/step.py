"""A step as FlashInfer describes it: pages of all rows one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from core_plugin_accelerator.paged import OverPaged, PagedPlan, pages
from torch import Tensor

from core_plugin_flashinfer.kind import Kind, LatentKind


@dataclass(frozen=True, slots=True)
class InferPlan(OverPaged):
    """One step.

    Attributes:
        paged: Slots, and what is on the device.
        wrappers: The planned wrapper of each kind of layers.
    """

    paged: PagedPlan
    wrappers: dict[Kind | LatentKind, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of a step's rows.

    What `plan` reads is on the host: it would copy it there, and wait.

    Attributes:
        starts: `(rows + 1,)` int32 on the host, where each row's pages begin.
        places: `(pages,)` int32 on the device.
        last: `(rows,)` int32 on the host, tokens in each row's last page.
        lengths: `(rows,)` int32 on the host, tokens of each row in the cache.
    """

    starts: Tensor
    places: Tensor
    last: Tensor
    lengths: Tensor


@dataclass(frozen=True, slots=True)
class StepPages:
    """Pages of a step, which plans of all kinds of layers are made of.

    Attributes:
        paged: The step.
        seq_lens: `(rows,)` tokens of each row in the cache, on the host.
        size: Tokens of a page.
        begins: `(rows + 1,)` offsets of each row's tokens in the step, on the host.
        pages: Those of all rows.
        single: Whether every row has one token in the step.
    """

    paged: PagedPlan
    seq_lens: np.ndarray
    size: int
    begins: np.ndarray
    pages: Pages
    single: bool

    @property
    def starts(self) -> Tensor:
        """The offsets as the library reads them: int32 on the host."""
        return torch.from_numpy(self.begins.astype(np.int32, copy=False))

    def busy(self) -> StepPages:
        """Return the same without rows that have no token in the step."""
        counts = np.diff(self.begins)
        if (counts > 0).all():
            return self
        kept = np.flatnonzero(counts)
        there = torch.from_numpy(kept).to(self.paged.tables.device, non_blocking=True)
        lens = self.seq_lens[kept]
        found = pages_of(self.paged.tables[there], self.paged.lengths[there], lens, self.size)
        begins = np.append(self.begins[kept], self.begins[-1])
        return StepPages(self.paged, lens, self.size, begins, found, self.single)


def step_pages(paged: PagedPlan, seq_lens: np.ndarray, size: int, starts: np.ndarray | None = None) -> StepPages:
    """Return the pages of a step.

    Args:
        starts: Offsets of each row's tokens; None: every row has one.
    """
    begins = np.arange(len(seq_lens) + 1) if starts is None else starts
    found = pages_of(paged.tables, paged.lengths, seq_lens, size)
    return StepPages(paged, seq_lens, size, begins, found, paged.single)


def pages_of(tables: Tensor, lengths: Tensor, seq_lens: np.ndarray, size: int) -> Pages:
    """Return the pages of rows of these lengths."""
    lens = seq_lens.astype(np.int64)
    counts = -(-lens // size)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    last = np.where(lens > 0, (lens - 1) % size + 1, 0).astype(np.int32)
    host = [torch.from_numpy(one) for one in (starts, last, lens.astype(np.int32))]
    return Pages(host[0], pages(tables, lengths, lens, size), *host[1:])


def index_memory(sizes: Sequence[int], device: torch.device) -> list[Tensor]:
    """Return memory for so many indices each."""
    return [torch.zeros(size, dtype=torch.int32, device=device) for size in sizes]
