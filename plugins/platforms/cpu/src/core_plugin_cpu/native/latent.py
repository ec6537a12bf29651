"""Multi-head latent attention by native kernels (`csrc/cpu/attention/latent.h`).

Three calls: queries are brought to the latents, attention, what they found there is made values. Rows of many new
tokens are *expanded*: keys and values are made of their latents within the second call, and the others leave them out.
Which rows are limited to picked positions the second call knows by their lengths, as a program is made for all steps.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from core.api.attention import KVLayout, LatentSite
from core_plugin_cpu.native.attention import CACHE_CODES, SCALE_BYTES, Batch, aligned
from core_plugin_cpu.native.checks import CODES, PICKED, explain, unfit
from core_plugin_cpu.native.entry import PREFIX, Entry
from core_plugin_cpu.native.library import library

if TYPE_CHECKING:
    from torch import Tensor

_ROWS = {name: name for name in ("query_starts", "seq_lens", "rows")}

LATENT_STORE = Entry(
    "latent_store",
    pointers="latent rope_key cache slots query_starts seq_lens",
    sizes="rows tokens latent_dim rope_dim latent_stride rope_stride ratio dtype kv_dtype threads",
    slots=_ROWS | {"tokens": "tokens", "slots": "slots"},
)
HEAD_PRODUCT = Entry(
    "head_product",
    pointers="x w out query_starts seq_lens scratch",
    sizes="rows heads inputs outputs x_stride x_head_stride latent_dim key_dim value_dim picks dtype threads",
    slots=_ROWS,
)
LATENT_ATTENTION = Entry(
    "latent_attention",
    pointers="q q_rope absorbed key value cache found out picked query_starts seq_lens table scratch",
    sizes="rows heads latent_dim rope_dim key_dim value_dim block_size picks q_stride q_head_stride "
    "rope_stride rope_head_stride table_stride dtype kv_dtype threads",
    numbers="scale",
    slots=_ROWS | {"table": "table", "table_stride": "table_stride"},
)

_VECTOR = 16
"""Up-projections, and what is between the calls, have sizes that are multiples of this."""


def latent_layout(site: LatentSite, block_size: int, kv_dtype: torch.dtype) -> KVLayout:
    """Return blocks of `(block_size, latent_dim + rope_dim)`; int8 with a scale behind each of the two parts."""
    width = site.latent_dim + site.rope_dim + (2 * SCALE_BYTES if kv_dtype == torch.int8 else 0)
    stored = torch.uint8 if kv_dtype.itemsize == 1 and kv_dtype.is_floating_point else kv_dtype
    return KVLayout((block_size, width), stored)


def scratch_for(site: LatentSite, threads: int) -> Tensor:
    """Return scratch memory for layers of this geometry with up to `threads` threads, whatever the batch."""
    sizes = (site.latent_dim, site.rope_dim, site.key_dim, site.value_dim)
    needed = [scratch_of(LATENT_ATTENTION, (1, site.num_heads, *sizes, 0, site.picks or 0, *(0,) * 7, threads, 0.0))]
    for inputs, outputs in ((site.key_dim, site.latent_dim), (site.latent_dim, site.value_dim)):
        needed.append(scratch_of(HEAD_PRODUCT, (1, site.num_heads, inputs, outputs, *(0,) * 7, threads)))
    return aligned(max(needed))


def scratch_of(entry: Entry, numbers: tuple[float, ...]) -> int:
    """Return the bytes of scratch memory that an entry asks for, given all but its pointers."""
    function = getattr(library(), f"{PREFIX}{entry.name}_scratch")
    function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_int64
    return int(function(entry.pack(*(0 for _ in entry.pointers), *numbers)))


@dataclass(frozen=True, slots=True)
class LatentCache:
    """How the cache of latent layers of one geometry is to be read, and the scratch memory for them.

    Attributes:
        site: A layer of this geometry.
        dtype: Of queries, latents and rotated keys.
        scratch: From `scratch_for` with at least as many threads as torch uses.
    """

    site: LatentSite
    dtype: torch.dtype
    block_size: int
    kv_dtype: torch.dtype
    scratch: Tensor
    layout: KVLayout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", latent_layout(self.site, self.block_size, self.kv_dtype))

    def compare(self, kv: Tensor, batch: Batch) -> None:
        """Refuse a cache tensor of another layout, and a step with places outside of it.

        Raises:
            ValueError, IndexError: As `Batch.compare`.
        """
        if kv.shape[1:] != self.layout.block_shape or kv.dtype is not self.layout.dtype or not kv.is_contiguous():
            raise unfit(f"blocks of {self.layout.block_shape} {self.layout.dtype} and", cache=kv)
        batch.compare(kv.shape[0], self.block_size)

    def take(self, name: str, given: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return what a call is given, its last dimension contiguous. Raises `ValueError` for another shape."""
        if given.shape != shape or given.dtype is not self.dtype or not given.is_cpu:
            raise unfit(f"{shape} {self.dtype} and", **{name: given})
        return given if given.stride(-1) == 1 else given.contiguous()


@dataclass(frozen=True, slots=True)
class UpProjection:
    """Up-projections as the kernels read them: contiguous, sizes rounded up to whole vectors.

    Attributes:
        key: `(heads, key_dim, latent_dim)`.
        value: `(heads, latent_dim, value_dim)`.
    """

    key: Tensor
    value: Tensor

    @staticmethod
    def of(key: Tensor, value: Tensor, cache: LatentCache) -> UpProjection:
        """Take the tensors as they are, or copies of them where sizes are no whole vectors.

        Raises:
            ValueError: They are not those of the layer.
        """
        site = cache.site
        key = cache.take("key", key, (site.num_heads, site.key_dim, site.latent_dim))
        value = cache.take("value", value, (site.num_heads, site.latent_dim, site.value_dim))
        return UpProjection(_padded(key), _padded(value))


def _padded(x: Tensor) -> Tensor:
    """Return `x (heads, rows, columns)`, zeros behind its rows and columns up to whole vectors."""
    rows, columns = (-size % _VECTOR for size in x.shape[1:])
    return pad(x, (0, columns, 0, rows)) if rows or columns else x.contiguous()


def write_latents(
    latent: Tensor, rope_key: Tensor, kv: Tensor, batch: Batch, cache: LatentCache, scale: float = 1.0
) -> None:
    """Store `latent (tokens, latent_dim)` and `rope_key (tokens, rope_dim)` at the batch's slots.

    Args:
        scale: What they are divided by before they are rounded.
    """
    site, dtype = cache.site, cache.dtype
    latent = cache.take("latent", latent, (batch.tokens, site.latent_dim))
    rope_key = cache.take("rope_key", rope_key, (batch.tokens, site.rope_dim))
    cache.compare(kv, batch)
    if scale != 1.0:
        # The kernel rounds what it is given; in float32 it is what it would be if the kernel divided.
        latent, rope_key, dtype = latent.float() / scale, rope_key.float() / scale, torch.float32
    pointers = (latent.data_ptr(), rope_key.data_ptr(), kv.data_ptr(), batch.slots, batch.query_starts, batch.seq_lens)
    sizes = (batch.rows, batch.tokens, site.latent_dim, site.rope_dim, latent.stride(0), rope_key.stride(0), 1)
    LATENT_STORE(*pointers, *sizes, CODES[dtype], CACHE_CODES[cache.kv_dtype], torch.get_num_threads())


def attend(
    q: Tensor,
    q_rope: Tensor,
    kv: Tensor,
    batch: Batch,
    cache: LatentCache,
    up: UpProjection,
    picked: Tensor | None = None,
    scale: float = 1.0,
) -> Tensor:
    """Attend causally: `q (tokens, heads, key_dim)`, `q_rope (tokens, heads, rope_dim)`.

    Args:
        picked: `(tokens, picks)` int32, the positions that queries of rows longer than `picks` see; -1 stands for none.
        scale: Factor of what is read: of the scores, and of the result, which is linear in it.

    Returns:
        `(tokens, heads * value_dim)`.
    """
    site, threads = cache.site, torch.get_num_threads()
    q = cache.take("q", q, (batch.tokens, site.num_heads, site.key_dim))
    q_rope = cache.take("q_rope", q_rope, (batch.tokens, site.num_heads, site.rope_dim))
    cache.compare(kv, batch)
    places, picks = (0, 0) if picked is None else (place_of(picked, batch, site.picks or 0), picked.shape[1])
    latent_dim = up.key.shape[2]
    absorbed = torch.empty(batch.tokens, site.num_heads, latent_dim, dtype=q.dtype)
    found = torch.empty(batch.tokens, site.num_heads, latent_dim, dtype=q.dtype)
    out = torch.empty(batch.tokens, site.num_heads * site.value_dim, dtype=q.dtype)
    _multiply(q, up.key, absorbed, (site.key_dim, latent_dim), batch, cache, picks)
    read = (q, q_rope, absorbed, up.key, up.value, kv, found, out)
    rows = (places, batch.query_starts, batch.seq_lens, batch.table)
    sizes = (batch.rows, site.num_heads, site.latent_dim, site.rope_dim, site.key_dim, site.value_dim, cache.block_size)
    strides = (picks, q.stride(0), q.stride(1), q_rope.stride(0), q_rope.stride(1), batch.table_stride)
    pointers = (*(one.data_ptr() for one in read), *rows, cache.scratch.data_ptr())
    kind = (CODES[cache.dtype], CACHE_CODES[cache.kv_dtype])
    LATENT_ATTENTION(*pointers, *sizes, *strides, *kind, threads, site.scale * scale)
    _multiply(found, up.value, out, (latent_dim, site.value_dim), batch, cache, picks)
    return out if scale == 1.0 else out.mul_(scale)


def place_of(picked: Tensor, batch: Batch, picks: int, ratio: int = 1) -> int:
    """Return where picked positions are, or numbers of entries for each `ratio` tokens.

    Raises:
        ValueError, IndexError: They are none of the step's.
    """
    wanted = (batch.tokens, picks)
    if picked.shape != wanted or picked.dtype is not torch.int32 or not picked.is_cpu or not picked.is_contiguous():
        raise unfit(f"contiguous {wanted} {torch.int32} on the CPU and", picked=picked)
    arguments = (picked.data_ptr(), batch.query_starts, batch.seq_lens, batch.rows, picked.shape[1], ratio)
    if PICKED(*arguments):
        raise IndexError(explain(PICKED, dict(zip(PICKED.fields, arguments))))
    return arguments[0]


def _multiply(
    x: Tensor, weight: Tensor, out: Tensor, sizes: tuple[int, int], batch: Batch, cache: LatentCache, picks: int
) -> None:
    """Multiply the vectors of each head with its own matrix, for rows that are not expanded."""
    site = cache.site
    pointers = (x.data_ptr(), weight.data_ptr(), out.data_ptr(), batch.query_starts, batch.seq_lens)
    strides = (x.stride(0), x.stride(1), site.latent_dim, site.key_dim, site.value_dim, picks)
    kind = (CODES[x.dtype], torch.get_num_threads())
    HEAD_PRODUCT(*pointers, cache.scratch.data_ptr(), batch.rows, site.num_heads, *sizes, *strides, *kind)
