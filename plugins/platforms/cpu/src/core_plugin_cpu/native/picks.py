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
    sizes="rows heads key_dim block_size picks ratio q_stride q_head_stride weights_stride table_stride dtype kv_dtype "
    "threads",
    numbers="scale",
    slots={name: name for name in ("query_starts", "seq_lens", "rows", "table", "table_stride")},
)


def picker_layout(site: PickSite, block_size: int, kv_dtype: torch.dtype) -> KVLayout:
    """Return blocks of `(block_size / ratio, key_dim)`; int8 with a scale behind each key."""
    return vector_layout(site.key_dim, block_size, site.ratio, kv_dtype)


def vector_layout(size: int, block_size: int, ratio: int, kv_dtype: torch.dtype) -> KVLayout:
    """Return blocks of one vector of `size` elements for each `ratio` tokens, of int8 with a scale behind it.

    Raises:
        ValueError: A block does not hold whole ones.
    """
    if block_size % ratio:
        raise ValueError(f"a block of {block_size} tokens has no whole number of entries that stand for {ratio}")
    stored = torch.uint8 if kv_dtype.itemsize == 1 and kv_dtype.is_floating_point else kv_dtype
    return KVLayout((block_size // ratio, size + (SCALE_BYTES if kv_dtype == torch.int8 else 0)), stored)


def scratch_for(site: PickSite, threads: int) -> Tensor:
    """Return scratch memory for pickers of this geometry with up to `threads` threads, whatever the batch."""
    sizes = (1, site.num_heads, site.key_dim, 0, site.picks, *(0,) * 7, threads)
    return aligned(scratch_of(PICK, (*sizes, 0.0)))


@dataclass(frozen=True, slots=True)
class VectorCache:
    """How a cache of one vector for each `ratio` tokens is to be read, and the scratch memory for what reads it.

    Attributes:
        dtype: Of queries and vectors.
        scratch: For as many threads as torch uses at least.
    """

    size: int
    ratio: int
    dtype: torch.dtype
    block_size: int
    kv_dtype: torch.dtype
    scratch: Tensor
    layout: KVLayout = field(init=False)

    def __post_init__(self) -> None:
        layout = vector_layout(self.size, self.block_size, self.ratio, self.kv_dtype)
        object.__setattr__(self, "layout", layout)

    @property
    def kind(self) -> tuple[int, int, int]:
        """The numbers of the dtypes, and the threads, as calls take them."""
        return CODES[self.dtype], CACHE_CODES[self.kv_dtype], torch.get_num_threads()

    def compare(self, kv: Tensor, batch: Batch) -> None:
        """Refuse a cache tensor of another layout, and a step with places outside of it.

        Raises:
            ValueError, IndexError: As `Batch.compare`.
        """
        if kv.shape[1:] != self.layout.block_shape or kv.dtype is not self.layout.dtype or not kv.is_contiguous():
            raise unfit(f"blocks of {self.layout.block_shape} {self.layout.dtype} and", cache=kv)
        batch.compare(kv.shape[0], self.block_size)

    def store(self, vectors: Tensor, kv: Tensor, batch: Batch) -> None:
        """Store `vectors (tokens, size)` at the batch's slots, of each `ratio` tokens of a row the last one's."""
        vectors = take("vectors", vectors, (batch.tokens, self.size), self.dtype)
        self.compare(kv, batch)
        pointers = (vectors.data_ptr(), 0, kv.data_ptr(), batch.slots, batch.query_starts, batch.seq_lens)
        sizes = (batch.rows, batch.tokens, self.size, 0, vectors.stride(0), 0, self.ratio)
        LATENT_STORE(*pointers, *sizes, *self.kind)


def pick(q: Tensor, weights: Tensor, kv: Tensor, batch: Batch, site: PickSite, cache: VectorCache) -> Tensor | None:
    """Pick positions, or entries, by `q (tokens, heads, key_dim)` and `weights (tokens, heads)` float32.

    Returns:
        `(tokens, picks)` int32, in order, -1 behind them; None where no row has more than `picks`. A program, which
        runs steps of all lengths, has them in any case.
    """
    tokens = batch.tokens
    q = take("q", q, (tokens, site.num_heads, site.key_dim), cache.dtype)
    weights = take("weights", weights, (tokens, site.num_heads), torch.float32)
    cache.compare(kv, batch)
    if batch.keep.seq_lens.max(initial=0) // site.ratio <= site.picks and not recording():
        return None
    out = torch.empty(tokens, site.picks, dtype=torch.int32)
    pointers = (q.data_ptr(), weights.data_ptr(), kv.data_ptr(), out.data_ptr())
    rows = (batch.query_starts, batch.seq_lens, batch.table, cache.scratch.data_ptr())
    sizes = (batch.rows, site.num_heads, site.key_dim, cache.layout.block_shape[0], site.picks, site.ratio)
    strides = (q.stride(0), q.stride(1), weights.stride(0), batch.table_stride)
    PICK(*pointers, *rows, *sizes, *strides, *cache.kind, site.scale)
    return out


def take(name: str, given: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return what a call is given, its last dimension contiguous. Raises `ValueError` for another shape or dtype."""
    if given.shape != shape or given.dtype is not dtype or not given.is_cpu:
        raise unfit(f"{shape} {dtype} and", **{name: given})
    return given if given.stride(-1) == 1 else given.contiguous()
