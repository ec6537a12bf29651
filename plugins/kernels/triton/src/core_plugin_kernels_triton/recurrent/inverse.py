"""Inverses of small unit triangular matrices, as the delta rule has one for each chunk of tokens."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import dot


@triton.jit
def inverse(among, CHUNK: tl.constexpr, PRECISION: tl.constexpr):
    """Return `(1 + among)^-1`, float32, for `among (CHUNK, CHUNK)` float32, zero but below its diagonal.

    `CHUNK` is 16, 32, 64 or 128. Blocks of 16 on the diagonal are inverted all at once by substitution, in 15 steps.
    Then two neighbours L and R become one, again and again, by two products of their size: below them is `-R B L`, B
    being what lies below them in `among`. So no power of `among` is ever formed, whose numbers may be greater than
    those of the inverse by many orders.
    """
    found = substituted(diagonal(among, CHUNK, 16), CHUNK // 16)
    if CHUNK > 16:
        found = joined(among, found, CHUNK, 16, PRECISION)
    if CHUNK > 32:
        found = joined(among, found, CHUNK, 32, PRECISION)
    if CHUNK > 64:
        found = joined(among, found, CHUNK, 64, PRECISION)
    return tl.reshape(found, (CHUNK, CHUNK))


@triton.jit
def diagonal(x, CHUNK: tl.constexpr, SIZE: tl.constexpr):
    """Return the blocks on the diagonal of `x (CHUNK, CHUNK)`: `(CHUNK / SIZE, SIZE, SIZE)`."""
    BLOCKS: tl.constexpr = CHUNK // SIZE
    own = (tl.arange(0, CHUNK) // SIZE)[:, None, None] == tl.arange(0, BLOCKS)[None, :, None]
    found = tl.sum(tl.where(own, tl.reshape(x, (CHUNK, BLOCKS, SIZE)), 0.0), 1)
    return tl.reshape(found, (BLOCKS, SIZE, SIZE))


@triton.jit
def substituted(blocks, BLOCKS: tl.constexpr):
    """Return the inverses of 1 + `blocks (BLOCKS, 16, 16)`, which are zero but below their diagonals."""
    line = tl.arange(0, 16)
    found = tl.where(line[:, None] == line[None, :], 1.0, 0.0)[None, :, :] + tl.zeros([BLOCKS, 16, 16], tl.float32)
    for i in range(15):  # what line i is in the end, all later lines lose as often as their column i says
        factor = tl.sum(tl.where(line[None, None, :] == i, blocks, 0.0), 2)
        known = tl.sum(tl.where(line[None, :, None] == i, found, 0.0), 1)
        found -= factor[:, :, None] * known[:, None, :]
    return found


@triton.jit
def joined(among, found, CHUNK: tl.constexpr, SIZE: tl.constexpr, PRECISION: tl.constexpr):
    """Return the inverses of blocks on the diagonal of twice the size, from those of `SIZE`."""
    PAIRS: tl.constexpr = CHUNK // (2 * SIZE)
    pair = tl.arange(0, 2)
    two = tl.reshape(found, (PAIRS, 2, SIZE, SIZE))
    above = tl.sum(tl.where(pair[None, :, None, None] == 0, two, 0.0), 1)
    under = tl.sum(tl.where(pair[None, :, None, None] == 1, two, 0.0), 1)
    lower = tl.reshape(diagonal(among, CHUNK, 2 * SIZE), (PAIRS, 2, SIZE, 2, SIZE))
    corner = (pair[:, None, None, None] == 1) & (pair[None, None, :, None] == 0)
    lower = tl.sum(tl.sum(tl.where(corner[None, :, :, :, :], lower, 0.0), 3), 1)
    nothing = tl.zeros([PAIRS, SIZE, SIZE], tl.float32)
    below = dot(-dot(under, lower, nothing, PRECISION), above, nothing, PRECISION)
    first, second = pair[:, None, None, None], pair[None, None, :, None]
    whole = tl.where(first == second, tl.where(first == 0, above[:, None, :, None, :], under[:, None, :, None, :]), 0.0)
    whole = tl.where(first > second, below[:, None, :, None, :], whole)
    return tl.reshape(whole, (PAIRS, 2 * SIZE, 2 * SIZE))


@triton.jit
def spread(blocks, CHUNK: tl.constexpr):
    """Return `(CHUNK, CHUNK)` of nothing but `blocks (CHUNK / 16, 16, 16)` on its diagonal."""
    own = (tl.arange(0, CHUNK) // 16)[:, None, None] == tl.arange(0, CHUNK // 16)[None, :, None]
    return tl.reshape(tl.where(own, tl.reshape(blocks, (CHUNK, 16))[:, None, :], 0.0), (CHUNK, CHUNK))
