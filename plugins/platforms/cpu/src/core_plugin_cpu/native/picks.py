"""Positions that latent attention is limited to, by native kernels (`csrc/cpu/attention/picks.h`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from core.api.attention import KVLayout, PickSite
from core_plugin_cpu.native.attention import CACHE_CODES, SCALE_BYTES, Batch, aligned
from core_plugin_cpu.native.checks import CODES, recording, unfit
from core_plugin_cpu.native.entry import Entry
from core_plugin_cpu.native.latent import LATENT_STORE, scratch_of

if TYPE_CHECKING:
    from torch import Tensor

PICK = Entry(
    "pick",
    pointers="q weights cache out query_starts seq_lens table scratch",
    sizes="rows heads key_dim block_size picks q_stride q_head_stride weights_stride table_stride dtype kv_dtype "
    "threads",
    numbers="scale",
    slots={name: name for name in ("query_starts", "seq_lens", "rows", "table", "table_stride")},
)


def picker_layout(site: PickSite, block_size: int, kv_dtype: torch.dtype) -> KVLayout:
    """Return blocks of `(block_size, key_dim)`; int8 with a scale behind each key."""
    stored = torch.uint8 if kv_dtype.itemsize == 1 and kv_dtype.is_floating_point else kv_dtype
    return KVLayout((block_size, site.key_dim + (SCALE_BYTES if kv_dtype == torch.int8 else 0)), stored)


def scratch_for(site: PickSite, threads: int) -> Tensor:
    """Return scratch memory for pickers of this geometry with up to `threads` threads, whatever the batch."""
    sizes = (1, site.num_heads, site.key_dim, 0, site.picks, *(0,) * 6, threads)
    return aligned(scratch_of(PICK, (*sizes, 0.0)))


@dataclass(frozen=True, slots=True)
class IndexCache:
    """How the cache of a picker is to be read, and the scratch memory for it.

    Attributes:
        dtype: Of queries and keys.
        scratch: From `scratch_for` with at least as many threads as torch uses.
    """

    site: PickSite
    dtype: torch.dtype
    block_size: int
    kv_dtype: torch.dtype
    scratch: Tensor
    layout: KVLayout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", picker_layout(self.site, self.block_size, self.kv_dtype))

    def compare(self, kv: Tensor, batch: Batch) -> None:
        """Refuse a cache tensor of another layout, and a step with places outside of it.

        Raises:
            ValueError, IndexError: As `Batch.compare`.
        """
        if kv.shape[1:] != self.layout.block_shape or kv.dtype is not self.layout.dtype or not kv.is_contiguous():
            raise unfit(f"blocks of {self.layout.block_shape} {self.layout.dtype} and", cache=kv)
        batch.compare(kv.shape[0], self.block_size)


def write_keys(key: Tensor, kv: Tensor, batch: Batch, cache: IndexCache) -> None:
    """Store index keys `key (tokens, key_dim)` at the batch's slots."""
    key = _take("key", key, (batch.tokens, cache.site.key_dim), cache.dtype)
    cache.compare(kv, batch)
    sizes = (batch.tokens, cache.site.key_dim, 0, key.stride(0), 0)
    kind = (CODES[cache.dtype], CACHE_CODES[cache.kv_dtype], torch.get_num_threads())
    LATENT_STORE(key.data_ptr(), 0, kv.data_ptr(), batch.slots, *sizes, *kind)


def pick(q: Tensor, weights: Tensor, kv: Tensor, batch: Batch, cache: IndexCache) -> Tensor | None:
    """Pick positions by `q (tokens, heads, key_dim)` and `weights (tokens, heads)` float32.

    Returns:
        `(tokens, picks)` int32, in order, -1 behind them; None where no row is longer than `picks`. A program, which
        runs steps of all lengths, has them in any case.
    """
    site, tokens = cache.site, batch.tokens
    q = _take("q", q, (tokens, site.num_heads, site.key_dim), cache.dtype)
    weights = _take("weights", weights, (tokens, site.num_heads), torch.float32)
    cache.compare(kv, batch)
    if batch.keep.seq_lens.max(initial=0) <= site.picks and not recording():
        return None
    out = torch.empty(tokens, site.picks, dtype=torch.int32)
    pointers = (q.data_ptr(), weights.data_ptr(), kv.data_ptr(), out.data_ptr())
    rows = (batch.query_starts, batch.seq_lens, batch.table, cache.scratch.data_ptr())
    sizes = (batch.rows, site.num_heads, site.key_dim, cache.block_size, site.picks)
    strides = (q.stride(0), q.stride(1), weights.stride(0), batch.table_stride)
    kind = (CODES[cache.dtype], CACHE_CODES[cache.kv_dtype], torch.get_num_threads())
    PICK(*pointers, *rows, *sizes, *strides, *kind, site.scale)
    return out


def _take(name: str, given: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return what a call is given, its last dimension contiguous. Raises `ValueError` for another shape or dtype."""
    if given.shape != shape or given.dtype is not dtype or not given.is_cpu:
        raise unfit(f"{shape} {dtype} and", **{name: given})
    return given if given.stride(-1) == 1 else given.contiguous()
