"""Rotary position embedding of queries and keys."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast


@triton.jit
def _rotate(
    positions,
    x,
    out,
    table,
    block,
    tokens,
    heads,
    head_dim,
    half,
    stride,
    table_stride,
    INTERLEAVED: tl.constexpr,
    ROWS: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    """Rotate `ROWS` heads, those of a token one after the other, and copy what is behind the rotated dimensions."""
    row = block.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    token = row // heads
    known = token < tokens
    given = x + (token * stride + (row % heads) * head_dim)[:, None]
    made = out + (row * head_dim)[:, None]
    pair = tl.arange(0, HALF)[None, :]
    inside = known[:, None] & (pair < half)
    angles = table + (tl.load(positions + token, mask=known, other=0) * table_stride)[:, None] + pair
    cos = cast(tl.load(angles, mask=inside, other=0.0), tl.float32)
    sin = cast(tl.load(angles + 3 * half, mask=inside, other=0.0), tl.float32)
    if INTERLEAVED:
        one, other = 2 * pair, 2 * pair + 1
    else:
        one, other = pair, pair + half
    a = cast(tl.load(given + one, mask=inside, other=0.0), tl.float32)
    b = cast(tl.load(given + other, mask=inside, other=0.0), tl.float32)
    tl.store(made + one, cast(a * cos - b * sin, out.dtype.element_ty), mask=inside)
    tl.store(made + other, cast(b * cos + a * sin, out.dtype.element_ty), mask=inside)
    if REST > 0:
        place = 2 * half + tl.arange(0, REST)[None, :]
        behind = known[:, None] & (place < head_dim)
        tl.store(made + place, tl.load(given + place, mask=behind, other=0.0), mask=behind)


@triton.jit
def rotary(
    positions,
    q,
    k,
    table,
    q_out,
    k_out,
    tokens,
    q_heads,
    k_heads,
    head_dim,
    half,
    q_stride,
    k_stride,
    table_stride,
    q_blocks,
    INTERLEAVED: tl.constexpr,
    ROWS: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    """Rotate some heads: of queries in the first `q_blocks` programs, of keys in those behind.

    A row of `table` is cos twice, the negated sin and sin, each `half` long. Heads of a token follow each other.
    """
    block = tl.program_id(0)
    if block < q_blocks:
        _rotate(
            positions, q, q_out, table, block, tokens, q_heads, head_dim, half, q_stride, table_stride,
            INTERLEAVED, ROWS, HALF, REST,
        )  # fmt: skip
    else:
        _rotate(
            positions, k, k_out, table, block - q_blocks, tokens, k_heads, head_dim, half, k_stride, table_stride,
            INTERLEAVED, ROWS, HALF, REST,
        )  # fmt: skip
