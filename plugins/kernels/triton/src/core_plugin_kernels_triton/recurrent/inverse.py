"""Inverses of small unit triangular matrices, as the delta rule has one for each chunk of tokens."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import dot


@triton.jit
def inverse(among, CHUNK: tl.constexpr, PRECISION: tl.constexpr):
    """Return `(1 + among)^-1`, float32, for `among (CHUNK, CHUNK)` float32, zero but below its diagonal.

    `CHUNK` is a power of two of at least 16. Blocks of 16 on the diagonal are inverted all at once by substitution, in
    15 steps. Then two neighbours L and R become one, again and again, by two products: below them is `-R among L`. So
    no power of `among` is ever formed, whose numbers may be greater than those of the inverse by many orders.
    """
    line = tl.arange(0, CHUNK)
    whole = diagonal_inverse(among, CHUNK)
    nothing = tl.zeros([CHUNK, CHUNK], tl.float32)
    for level in tl.static_range(0, 3):  # chunks of up to 128
        if CHUNK > 16 << level:
            of = line // (16 << level)
            one = of[:, None] // 2 == of[None, :] // 2
            below = tl.where(one & (of[:, None] > of[None, :]), among, 0.0)
            whole = dot(-dot(whole, below, nothing, PRECISION), whole, whole, PRECISION)
    return whole


@triton.jit
def diagonal_inverse(among, CHUNK: tl.constexpr):
    """Return the same of `among` with nothing outside of the blocks of 16 on its diagonal."""
    BLOCKS: tl.constexpr = CHUNK // 16
    line = tl.arange(0, 16)
    own = (tl.arange(0, CHUNK) // 16)[:, None, None] == tl.arange(0, BLOCKS)[None, :, None]
    blocks = tl.sum(tl.where(own, tl.reshape(among, (CHUNK, BLOCKS, 16)), 0.0), 1)
    blocks = tl.reshape(blocks, (BLOCKS, 16, 16))
    found = tl.where(line[:, None] == line[None, :], 1.0, 0.0)[None, :, :] + tl.zeros([BLOCKS, 16, 16], tl.float32)
    for i in range(15):  # what line i is in the end, all later lines lose as often as their column i says
        factor = tl.sum(tl.where(line[None, None, :] == i, blocks, 0.0), 2)
        known = tl.sum(tl.where(line[None, :, None] == i, found, 0.0), 1)
        found -= factor[:, :, None] * known[:, None, :]
    spread = tl.where(own, tl.reshape(found, (CHUNK, 16))[:, None, :], 0.0)
    return tl.reshape(spread, (CHUNK, CHUNK))
