"""Paged attention by libraries of kernels: plans, caches of plain numbers, and what backends over them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite, BatchView, KVLayout
from core.api.steps import StepShape


@dataclass(frozen=True, slots=True)
class PagedPlan:
    """One step, as libraries want it described.

    Attributes:
        tables, starts, lengths: As in `BatchView`, on the device.
        ends: `(rows + 1,)` int32 on the device, where each row's keys would begin if those of all rows were one behind
            the other.
        slots: As in `BatchView`: rows of a cache seen as `(num_blocks * block_size, ...)`.
        key_slots, value_slots: `(tokens,)` int64 on the device, rows of the cache seen as `(num_blocks * 2 *
            block_size, ...)`.
        max_query, max_length: Most tokens of a row in the step, and in the cache.
        counts, seq_lens: `(rows,)` tokens of each row in the step and in the cache, on the host.
    """

    tables: Tensor
    starts: Tensor
    lengths: Tensor
    ends: Tensor
    slots: Tensor
    key_slots: Tensor
    value_slots: Tensor
    max_query: int
    max_length: int
    counts: np.ndarray
    seq_lens: np.ndarray

    @property
    def rows(self) -> int:
        """Rows of the step."""
        return len(self.counts)

    @property
    def single(self) -> bool:
        """Whether every row has one token in the step."""
        return self.max_query == 1 and bool((self.counts == 1).all())


class OverPaged:
    """A plan that has more than a step's rows; what writes a cache finds its slots in either.

    Attributes:
        paged: The rows.
    """

    __slots__ = ()

    paged: PagedPlan

    @property
    def slots(self) -> Tensor:
        """Where latents go."""
        return self.paged.slots

    @property
    def key_slots(self) -> Tensor:
        """Where keys go."""
        return self.paged.key_slots

    @property
    def value_slots(self) -> Tensor:
        """Where values go."""
        return self.paged.value_slots

    @property
    def tables(self) -> Tensor:
        """Blocks of each row."""
        return self.paged.tables


class PagedBackend(ABC):
    """Block `b` has its keys in `cache[b, 0]`, its values in `cache[b, 1]`, each `(block_size, kv_heads, head_dim)`."""

    def __init__(self, ctx: AttentionContext) -> None:
        self._ctx = ctx

    def kv_layout(self, site: AttentionSite) -> KVLayout:
        """Return blocks of `(2, block_size, kv_heads, head_dim)`."""
        ctx = self._ctx
        return KVLayout((2, ctx.block_size, site.num_kv_heads, site.head_dim), ctx.kv_dtype)

    def plan(self, batch: BatchView) -> PagedPlan:
        """Describe a step, for layers of any kind."""
        starts, lengths = batch.on_device()
        ends = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=lengths.device)
        torch.cumsum(lengths, 0, dtype=torch.int32, out=ends[1:])
        keys, size = batch.slots.clone(), self._ctx.block_size
        keys += torch.div(batch.slots, size, rounding_mode="floor") * size
        counts = np.diff(batch.query_starts)
        most = (batch.max_query_len, batch.max_seq_len)
        places = (batch.slots, keys, keys + size)
        return PagedPlan(batch.block_tables, starts, lengths, ends, *places, *most, counts, batch.seq_lens)

    def fixed_plan(self, shape: StepShape) -> PagedPlan:
        """Return a plan in memory of its own that captured graphs read; `refresh` fills it."""
        rows, size, device = shape.num_rows, self._ctx.block_size, self._ctx.device
        return PagedPlan(
            torch.zeros(rows, -(-shape.max_seq_len // size), dtype=torch.int32, device=device),
            torch.arange(rows + 1, dtype=torch.int32, device=device),
            torch.ones(rows, dtype=torch.int32, device=device),
            torch.arange(rows + 1, dtype=torch.int32, device=device),
            torch.zeros(rows, dtype=torch.int64, device=device),
            torch.zeros(rows, dtype=torch.int64, device=device),
            torch.full((rows,), size, dtype=torch.int64, device=device),
            1,
            shape.max_seq_len,
            np.ones(rows, dtype=np.int32),
            np.full(rows, shape.max_seq_len, dtype=np.int32),
        )

    def refresh(self, plan: PagedPlan, batch: BatchView) -> None:
        """Fill a fixed plan for a batch of its shape."""
        size = self._ctx.block_size
        plan.tables.copy_(batch.block_tables)
        plan.lengths.copy_(batch.on_device()[1])
        torch.cumsum(plan.lengths, 0, dtype=torch.int32, out=plan.ends[1:])
        plan.slots.copy_(batch.slots)
        torch.div(batch.slots, size, rounding_mode="floor", out=plan.key_slots)
        plan.key_slots.mul_(size).add_(batch.slots)
        torch.add(plan.key_slots, size, out=plan.value_slots)

    @abstractmethod
    def layer(self, site: AttentionSite) -> PagedLayer:
        """Return the attention of one layer."""


class PagedLayer(ABC):
    """Attention of one layer over a cache of plain numbers."""

    def __init__(self, site: AttentionSite, ctx: AttentionContext) -> None:
        self._site, self._ctx = site, ctx

    def write_kv(self, k: Tensor, v: Tensor, kv: Tensor, plan: PagedPlan) -> None:
        """Store `k, v (tokens, kv_heads, head_dim)` at the plan's slots."""
        flat, k, v = kv.view(-1, *kv.shape[3:]), self._stored(k, key=True), self._stored(v, key=False)
        if flat.dtype.itemsize == 1:  # torch copies bytes everywhere, float8 not
            flat, k, v = flat.view(torch.uint8), k.view(torch.uint8), v.view(torch.uint8)
        flat.index_copy_(0, plan.key_slots, k)
        flat.index_copy_(0, plan.value_slots, v)

    def forward(self, q: Tensor, kv: Tensor, plan: PagedPlan) -> Tensor:
        """Attend causally; `q (tokens, heads, head_dim)` -> `(tokens, heads * head_dim)`."""
        if not q.shape[0]:
            return q.flatten(1)
        return self._attend(dense_heads(q), kv, plan).reshape(q.shape[0], -1)

    def _stored(self, x: Tensor, *, key: bool) -> Tensor:
        """Return keys, or values, as numbers of the cache: what is too large for float8 becomes its largest."""
        dtype = self._ctx.kv_dtype
        if dtype.itemsize == 1:  # torch before 2.13 makes it no number
            most = torch.finfo(dtype).max
            x = x.clamp(-most, most)
        return x.to(dtype)

    @abstractmethod
    def _attend(self, q: Tensor, kv: Tensor, plan: PagedPlan) -> Tensor:
        """Return `(tokens, heads, head_dim)`, of at least one token, whose heads are dense."""


def dense_heads(x: Tensor) -> Tensor:
    """Return `x`, the numbers of each head one behind the other."""
    return x if x.stride(-1) == 1 else x.contiguous()


def causal_window(site: AttentionSite) -> tuple[int, int]:
    """Return how many keys before and behind its own a query sees, as FlashAttention counts: -1 for all before it."""
    return (-1 if site.window is None else site.window - 1, 0)


def pages(tables: Tensor, lengths: Tensor, seq_lens: np.ndarray, block_size: int) -> Tensor:
    """Return the blocks of all rows one behind the other, `(sum of blocks,)` int32 on the device; nothing waits."""
    total = int((-(-seq_lens.astype(np.int64) // block_size)).sum())
    rows, columns = entries(torch.div(lengths + block_size - 1, block_size, rounding_mode="floor"), total)
    return tables[rows, columns]


def entries(counts: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """Return row and column of the first `counts (rows,)` entries of each row, `(total,)` int64 each.

    Args:
        total: Sum of the counts, which the host knows: asking the device for it would wait.
    """
    counts = counts.long()
    rows = torch.repeat_interleave(counts, output_size=total)
    first = torch.cumsum(counts, 0) - counts
    return rows, torch.arange(total, device=counts.device) - first[rows]
