"""Storing keys and values in the cache. Where that is asked for, queries and keys are rotated by the same launch."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from core_plugin_kernels_triton.attention.form import Form
from core_plugin_kernels_triton.compat import cast, to_float8
from core_plugin_kernels_triton.launch import launch


@triton.jit
def stored(x, scale, dtype: tl.constexpr, FLOAT8: tl.constexpr):
    """Return `x` as elements of a cache: what is too large for float16 or float8 becomes the largest."""
    if FLOAT8 > 0:
        y = to_float8(cast(x, tl.float32) / scale, FLOAT8 == 2)
    else:
        if dtype == tl.float16:
            wide = cast(x, tl.float32)
            wide = tl.where(wide > 65504.0, 65504.0, wide)
            y = cast(tl.where(wide < -65504.0, -65504.0, wide), dtype)
        else:
            y = cast(x, dtype)
    return y


@triton.jit
def rotated(x, pointers, places, table, table_row, mask, ROTARY: tl.constexpr, PAIRS: tl.constexpr):
    """Return heads `x (M, D)`, read from `pointers (M,)`, rotated in their first `ROTARY` dimensions.

    Args:
        places: `(M,)` rows of the table.
        table: `(positions, 2 * ROTARY)`: cosines, then sines whose first half is negated.
        PAIRS: Whether neighbours form pairs; else the halves do.
    """
    dims = tl.arange(0, x.shape[1])
    turned = dims < ROTARY
    half: tl.constexpr = ROTARY // 2
    if PAIRS:
        other = dims ^ 1
        angle = dims // 2
        sine = half + angle  # those that are not negated
        sign = tl.where(dims % 2 == 0, -1.0, 1.0)
    else:
        other = tl.where(dims < half, dims + half, dims - half)
        angle = dims
        sine = dims
        sign = tl.where(dims < 0, -1.0, 1.0)
    there = mask[:, None] & turned[None, :]
    rows = table + places.to(tl.int64)[:, None] * table_row
    cosines = cast(tl.load(rows + angle[None, :], mask=there, other=0), tl.float32)
    sines = cast(tl.load(rows + (ROTARY + sine)[None, :], mask=there, other=0), tl.float32)
    partner = cast(tl.load(pointers[:, None] + other[None, :], mask=there, other=0), tl.float32)
    wide = cast(x, tl.float32)
    return cast(tl.where(turned[None, :], wide * cosines + partner * sines * sign[None, :], wide), x.dtype)


@triton.jit
def turn_queries(
    q,
    out,
    positions,
    table,
    first,
    tokens,
    q_token,
    q_head,
    table_row,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ROTARY: tl.constexpr,
    PAIRS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Write `ROWS` of all heads of all tokens, from number `first` on, rotated to `out (tokens, HEADS, HEAD_DIM)`."""
    i = first + tl.arange(0, ROWS)
    token = (i // HEADS).to(tl.int64)
    mine = token < tokens
    head = i % HEADS
    dims = tl.arange(0, BLOCK_D)
    there = mine[:, None] & (dims < HEAD_DIM)[None, :]
    at = q + token * q_token + head * q_head
    query = tl.load(at[:, None] + dims[None, :], mask=there, other=0)
    places = tl.load(positions + token, mask=mine, other=0)
    query = rotated(query, at, places, table, table_row, mine, ROTARY, PAIRS)
    to = out + (token * HEADS + head) * HEAD_DIM
    tl.store(to[:, None] + dims[None, :], query, mask=there)


@triton.jit(do_not_specialize=["tokens", "storing"], do_not_specialize_on_alignment=["slots", "positions"])
def store_kernel(
    q,
    out,
    k,
    v,
    kv,
    slots,
    positions,
    table,
    key_scales,
    value_scales,
    tokens,
    storing,
    q_token,
    q_head,
    k_token,
    k_head,
    v_token,
    v_head,
    kv_block,
    kv_half,
    kv_token,
    kv_head,
    table_row,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    FLOAT8: tl.constexpr,
    ROTARY: tl.constexpr,
    PAIRS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """`ROWS` of all heads of all tokens: of keys and values in the first `storing` programs, of queries in others."""
    program = tl.program_id(0)
    if ROTARY > 0:
        first = (program - storing) * ROWS
        if program >= storing:
            turn_queries(
                q,
                out,
                positions,
                table,
                first,
                tokens,
                q_token,
                q_head,
                table_row,
                GROUP * KV_HEADS,
                HEAD_DIM,
                BLOCK_D,
                ROTARY,
                PAIRS,
                ROWS,
            )
            return
    i = program * ROWS + tl.arange(0, ROWS)
    token = (i // KV_HEADS).to(tl.int64)
    mine = token < tokens
    head = i % KV_HEADS
    slot = tl.load(slots + token, mask=mine, other=0)
    at = kv + slot // BLOCK_SIZE * kv_block + slot % BLOCK_SIZE * kv_token + head * kv_head
    dims = tl.arange(0, BLOCK_D)
    there = mine[:, None] & (dims < HEAD_DIM)[None, :]
    key_at = k + token * k_token + head * k_head
    value_at = v + token * v_token + head * v_head
    key = tl.load(key_at[:, None] + dims[None, :], mask=there, other=0)
    value = tl.load(value_at[:, None] + dims[None, :], mask=there, other=0)
    if ROTARY > 0:
        places = tl.load(positions + token, mask=mine, other=0)
        key = rotated(key, key_at, places, table, table_row, mine, ROTARY, PAIRS)
    key_scale = tl.full([ROWS, 1], 1.0, tl.float32)
    value_scale = tl.full([ROWS, 1], 1.0, tl.float32)
    if FLOAT8 > 0:
        key_scale = tl.load(key_scales + head, mask=mine, other=1)[:, None]
        value_scale = tl.load(value_scales + head, mask=mine, other=1)[:, None]
    to = at[:, None] + dims[None, :]
    tl.store(to, stored(key, key_scale, kv.dtype.element_ty, FLOAT8), mask=there)
    tl.store(to + kv_half, stored(value, value_scale, kv.dtype.element_ty, FLOAT8), mask=there)


@launch("Tensor k, Tensor v, Tensor(a!) kv, Tensor slots, Tensor key_scales, Tensor value_scales, int[] form")
def store(
    k: Tensor, v: Tensor, kv: Tensor, slots: Tensor, key_scales: Tensor, value_scales: Tensor, form: Form
) -> None:
    """Store keys and values at the slots of their tokens.

    Args:
        k, v: `(tokens, kv_heads, head_dim)`, heads and tokens at any stride.
        kv: `(blocks, 2, block_size, kv_heads, head_dim)`; bytes, for float8.
        slots: `(tokens,)` int64.
        key_scales, value_scales: `(kv_heads,)` float32, of a float8 cache.
    """
    _store(None, None, k, v, kv, slots, None, None, key_scales, value_scales, False, Form(*form))


@launch(
    "Tensor q, Tensor(a!) out, Tensor k, Tensor v, Tensor(b!) kv, Tensor slots, Tensor positions, Tensor table, "
    "Tensor key_scales, Tensor value_scales, bool pairs, int[] form"
)
def store_rotated(
    q: Tensor,
    out: Tensor,
    k: Tensor,
    v: Tensor,
    kv: Tensor,
    slots: Tensor,
    positions: Tensor,
    table: Tensor,
    key_scales: Tensor,
    value_scales: Tensor,
    pairs: bool,
    form: Form,
) -> None:
    """Store keys, which are rotated first, and values; write rotated queries to `out`.

    Args:
        q: `(tokens, heads, head_dim)`, heads and tokens at any stride.
        out: The same, dense.
        positions: `(tokens,)` int64: rows of the table.
        table: What core's `rotary_table` returns, `(positions, 2 * rotary_dim)`.
        pairs: Whether neighbouring dimensions are rotated together, as in `rotary_interleaved`.

    Others are those of `store`.
    """
    _store(q, out, k, v, kv, slots, positions, table, key_scales, value_scales, pairs, Form(*form))


def _store(
    q: Tensor | None,
    out: Tensor | None,
    k: Tensor,
    v: Tensor,
    kv: Tensor,
    slots: Tensor,
    positions: Tensor | None,
    table: Tensor | None,
    key_scales: Tensor,
    value_scales: Tensor,
    pairs: bool,
    f: Form,
) -> None:
    tokens = slots.shape[0]
    storing = -(-tokens * f.kv_heads // f.stored)
    turning = 0 if q is None else -(-tokens * f.kv_heads * f.group // f.stored)
    store_kernel[(storing + turning,)](
        *(q, out, k, v, kv, slots, positions, table, key_scales, value_scales, tokens, storing),
        *((0, 0) if q is None else q.stride()[:2]),
        *(*k.stride()[:2], *v.stride()[:2], *kv.stride()[:4]),
        0 if table is None else table.stride(0),
        GROUP=f.group,
        KV_HEADS=f.kv_heads,
        HEAD_DIM=f.dim,
        BLOCK_D=f.width,
        BLOCK_SIZE=f.block_size,
        FLOAT8=f.float8,
        ROTARY=0 if table is None else table.shape[1] // 2,
        PAIRS=pairs,
        ROWS=f.stored,
        num_warps=4,
    )
