"""Activations, plain and gated."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast

SILU = tl.constexpr(0)
GELU = tl.constexpr(1)
GELU_TANH = tl.constexpr(2)


@triton.jit
def _activated(x, KIND: tl.constexpr):
    if KIND == SILU:
        y = x / (1.0 + tl.exp(-x))
    elif KIND == GELU:
        y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    else:
        # (1 + tanh(u)) / 2 is the logistic function of 2u.
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        y = x / (1.0 + tl.exp(-2.0 * inner))
    return y


@triton.jit
def activate(
    x,
    out,
    rows,
    width,
    stride,
    blocks,
    KIND: tl.constexpr,
    GATED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write a tile of `out (rows, width)`; rows of `x` are a stride apart.

    `GATED`: a row of `x` is a gate, which is activated, and what it is multiplied with, each `width` long.
    """
    program = tl.program_id(0)
    row = ((program // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    place = ((program % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[None, :]
    inside = (row < rows) & (place < width)
    first = x + row * stride + place
    result = _activated(cast(tl.load(first, mask=inside, other=0.0), tl.float32), KIND)
    if GATED:
        result *= cast(tl.load(first + width, mask=inside, other=0.0), tl.float32)
    tl.store(out + row * width + place, cast(result, out.dtype.element_ty), mask=inside)
