"""Paged attention and storage in the paged cache by native kernels."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from core.api.attention import AttentionSite, BatchView, KVLayout
from core_plugin_cpu.native.checks import BATCH, CODES, explain, recording, unfit
from core_plugin_cpu.native.elementwise import ROPE_KV, packed_heads
from core_plugin_cpu.native.entry import FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, INT8, Entry
from core_plugin_cpu.native.library import library

ATTENTION = Entry(
    "attention",
    pointers="q cache out query_starts seq_lens table scratch slopes sinks",
    sizes="rows heads kv_heads head_dim block_size block_stride q_stride out_stride table_stride window dtype kv_dtype "
    "threads",
    numbers="scale softcap value_scale rooted",
    slots={name: name for name in ("query_starts", "seq_lens", "table", "table_stride", "rows")},
)
STORE_KV = Entry(
    "store_kv",
    pointers="k v cache slots",
    sizes="tokens kv_heads head_dim k_stride v_stride block_size block_stride dtype kv_dtype threads",
    numbers="key_scale value_scale",
    slots={"tokens": "tokens", "slots": "slots"},
)

CACHE_CODES = CODES | {
    torch.float16: FLOAT16,
    torch.int8: INT8,
    torch.float8_e4m3fn: FLOAT8_E4M3,
    torch.float8_e5m2: FLOAT8_E5M2,
}
"""Dtypes of a cache."""

_INT32 = np.dtype(np.int32)

SCALE_BYTES = 4
"""An int8 cache has one float32 per token and kv head for the keys, and one for the values."""


def kv_layout(site: AttentionSite, block_size: int, kv_dtype: torch.dtype) -> KVLayout:
    """Return the layout of a block: keys and values of every kv head; the order inside is the kernel's own."""
    per_head = block_size * site.head_dim
    if kv_dtype == torch.int8:
        per_head += block_size * SCALE_BYTES
    # Bytes, because hardly anything in torch computes with float8, not even copies by index.
    stored = torch.uint8 if kv_dtype.itemsize == 1 and kv_dtype.is_floating_point else kv_dtype
    return KVLayout((2, site.num_kv_heads, per_head), stored)


def scratch_for(site: AttentionSite, dtype: torch.dtype, block_size: int, threads: int) -> Tensor:
    """Return scratch memory for attention of this geometry with up to `threads` threads, whatever the batch."""
    function = library().core_cpu_attention_scratch
    function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_int64
    sizes = (1, site.num_heads, site.num_kv_heads, site.head_dim, block_size, 0, 0, 0, 0, 0, CODES[dtype], 0, threads)
    size = function(ATTENTION.pack(*(0,) * 9, *sizes, site.scale, 0.0, 1.0, 0.0))
    return aligned(size)


def aligned(size: int, alignment: int = 64) -> Tensor:
    """Return `size` bytes of uninitialised memory that begin at a multiple of `alignment`."""
    whole = torch.empty(size + alignment, dtype=torch.uint8)
    skip = -whole.data_ptr() % alignment
    return whole[skip : skip + size]


@dataclass(slots=True)
class Batch:
    """A step as the kernels read it. The tensors and arrays behind the pointers live as long as `keep`.

    Attributes:
        seen: Blocks and block sizes of the caches that it was compared with.
    """

    query_starts: int
    seq_lens: int
    table: int
    table_stride: int
    table_width: int
    rows: int
    tokens: int
    slots: int
    keep: BatchView
    seen: list[tuple[int, int]] = field(default_factory=list)

    @staticmethod
    def of(view: BatchView) -> Batch:
        """Take the pointers of a batch on the host. Raises `ValueError` for arrays of other dtypes or lengths."""
        table, slots, starts, lengths = view.block_tables, view.slots, view.query_starts, view.seq_lens
        rows, tokens = len(lengths), len(slots)
        if starts.dtype != _INT32 or lengths.dtype != _INT32 or starts.strides != (4,) or lengths.strides != (4,):
            raise ValueError(f"a batch has contiguous int32 rows, not {starts.dtype} and {lengths.dtype}")
        if table.dtype is not torch.int32 or not table.is_cpu or (table.stride(1) != 1 and table.shape[1] > 1):
            raise ValueError("the block table's rows must be contiguous int32 numbers on the CPU")
        if len(starts) != rows + 1 or len(table) < rows or slots.dtype is not torch.int64 or not slots.is_contiguous():
            raise unfit(f"a batch of {rows} rows and {len(starts)} offsets", block_tables=table, slots=slots)
        pointers = (starts.ctypes.data, lengths.ctypes.data, table.data_ptr())
        return Batch(*pointers, table.stride(0), table.shape[1], rows, tokens, slots.data_ptr(), view)

    def compare(self, blocks: int, block_size: int) -> None:
        """Refuse places outside a cache of so many blocks, once for all layers of a step; 0 blocks: there is no cache.

        Raises:
            IndexError: A row, block or slot is none of the step's or the cache's.
        """
        if (blocks, block_size) in self.seen and not recording():
            return
        pointers = (self.query_starts, self.seq_lens, self.table, self.slots)
        arguments = (*pointers, self.rows, self.tokens, self.table_stride, self.table_width, block_size, blocks)
        if BATCH(*arguments):
            raise IndexError(explain(BATCH, dict(zip(BATCH.fields, arguments))))
        self.seen.append((blocks, block_size))


@dataclass(frozen=True, slots=True)
class Cache:
    """How a layer's cache is to be read, and the scratch memory for it.

    Attributes:
        site: A layer of this geometry.
        dtype: Of queries, keys and values.
        scratch: From `scratch_for` with at least as many threads as torch uses.
        scales: What keys and values are divided by before they are rounded, float8 only.
    """

    site: AttentionSite
    dtype: torch.dtype
    block_size: int
    kv_dtype: torch.dtype
    scratch: Tensor
    scales: tuple[float, float] = (1.0, 1.0)
    layout: KVLayout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", kv_layout(self.site, self.block_size, self.kv_dtype))

    def compare(self, kv: Tensor, batch: Batch) -> None:
        """Refuse a cache tensor of another layout, and a step with places outside of it.

        Raises:
            ValueError, IndexError: As `Batch.compare`.
        """
        if kv.shape[1:] != self.layout.block_shape or kv.dtype is not self.layout.dtype or not kv.is_contiguous():
            raise unfit(f"blocks of {self.layout.block_shape} {self.layout.dtype} and", cache=kv)
        batch.compare(kv.shape[0], self.block_size)


def write_kv(k: Tensor, v: Tensor, kv: Tensor, batch: Batch, cache: Cache) -> None:
    """Store `k, v (tokens, kv_heads, head_dim)` at the batch's slots of a layer's cache."""
    wanted, dtype = (batch.tokens, cache.site.num_kv_heads, cache.site.head_dim), cache.dtype
    if k.shape != wanted or v.shape != wanted or not (k.dtype is v.dtype is dtype) or not (k.is_cpu and v.is_cpu):
        raise unfit(f"keys and values of {wanted} {dtype} and", k=k, v=v)
    cache.compare(kv, batch)
    if k.dtype == cache.kv_dtype:
        _copy_kv(k, v, kv, batch, cache.block_size)
        return
    tokens, kv_heads, head_dim = k.shape
    k, v = packed_heads(k), packed_heads(v)
    pointers = (k.data_ptr(), v.data_ptr(), kv.data_ptr(), batch.slots)
    strides = (k.stride(0), v.stride(0), cache.block_size, kv.stride(0))
    kind = (CODES[k.dtype], CACHE_CODES[cache.kv_dtype], torch.get_num_threads())
    STORE_KV(*pointers, tokens, kv_heads, head_dim, *strides, *kind, *cache.scales)


def _copy_kv(k: Tensor, v: Tensor, kv: Tensor, batch: Batch, block_size: int) -> None:
    tokens, kv_heads, head_dim = k.shape
    k, v = packed_heads(k), packed_heads(v)
    pointers = (0, k.data_ptr(), v.data_ptr(), 0, 0, kv.data_ptr(), 0, batch.slots, 0, 0)
    strides = (0, k.stride(0), v.stride(0), 0, 0, 0, block_size, kv.stride(0))
    dtype = CODES[k.dtype]
    ROPE_KV(*pointers, tokens, 0, kv_heads, head_dim, 0, 0, *strides, dtype, dtype, torch.get_num_threads())


@dataclass(slots=True)
class HeadTerms:
    """Terms that a layer adds to its scores, one float32 number for each query head; None: nothing.

    Attributes:
        slopes: Factor of the distance between key and query (ALiBi).
        sinks: Scores of a key without a value.
    """

    slopes: Tensor | None = None
    sinks: Tensor | None = None

    @property
    def pointers(self) -> tuple[int, int]:
        """Their addresses, 0 for none."""
        slopes, sinks = (0 if one is None else one.data_ptr() for one in (self.slopes, self.sinks))
        return slopes, sinks


PLAIN = HeadTerms()


def attend(q: Tensor, kv: Tensor, batch: Batch, site: AttentionSite, cache: Cache, terms: HeadTerms = PLAIN) -> Tensor:
    """Attend causally; `q (tokens, heads, head_dim)` -> `(tokens, heads * head_dim)`."""
    if q.shape != (batch.tokens, site.num_heads, site.head_dim) or q.dtype is not cache.dtype or not q.is_cpu:
        raise unfit(f"queries of {(batch.tokens, site.num_heads, site.head_dim)} {cache.dtype} and", q=q)
    cache.compare(kv, batch)
    q = packed_heads(q)
    tokens, heads, head_dim = q.shape
    out = torch.empty(tokens, heads * head_dim, dtype=q.dtype)
    pointers = (q.data_ptr(), kv.data_ptr(), out.data_ptr(), batch.query_starts, batch.seq_lens, batch.table)
    shape = (batch.rows, heads, site.num_kv_heads, head_dim, cache.block_size, kv.stride(0))
    strides = (q.stride(0), heads * head_dim, batch.table_stride, site.window or 0)
    kind = (CODES[q.dtype], CACHE_CODES[cache.kv_dtype], torch.get_num_threads())
    key_scale, value_scale = cache.scales
    numbers = (site.scale * key_scale, site.softcap or 0.0, value_scale, float(site.rooted))
    ATTENTION(*pointers, cache.scratch.data_ptr(), *terms.pointers, *shape, *strides, *kind, *numbers)
    return out
