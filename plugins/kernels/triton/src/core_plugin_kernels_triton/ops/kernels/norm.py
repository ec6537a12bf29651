"""RMS norm and layer norm, with or without a residual sum in front."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast


@triton.jit
def norm(
    x,
    residual,
    weight,
    bias,
    out,
    total,
    eps,
    rows,
    heads,
    size,
    x_stride,
    residual_stride,
    CENTERED: tl.constexpr,
    ADDED: tl.constexpr,
    BIASED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Norm `ROWS` rows of `size <= BLOCK`.

    A row is one head: `heads` of them follow each other, and the next token's begin a stride further. `out` and `total`
    are contiguous. `CENTERED` is layer norm, `ADDED` writes `x + residual` to `total` and norms that.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (place < size)[None, :]
    token, head = row // heads, row % heads
    given = (head * size)[:, None] + place[None, :]
    made = (row * size)[:, None] + place[None, :]
    values = cast(tl.load(x + (token * x_stride)[:, None] + given, mask=inside, other=0.0), tl.float32)
    if ADDED:
        added = tl.load(residual + (token * residual_stride)[:, None] + given, mask=inside, other=0.0)
        rounded = cast(values + cast(added, tl.float32), total.dtype.element_ty)
        tl.store(total + made, rounded, mask=inside)
        values = cast(rounded, tl.float32)
    if CENTERED:
        mean = tl.sum(values, 1) / size
        values = tl.where(inside, values - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(values * values, 1) / size + eps)
    known = place < size
    result = values * scale[:, None] * cast(tl.load(weight + place, mask=known, other=0.0), tl.float32)[None, :]
    if BIASED:
        result += cast(tl.load(bias + place, mask=known, other=0.0), tl.float32)[None, :]
    tl.store(out + made, cast(result, out.dtype.element_ty), mask=inside)
