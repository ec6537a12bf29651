"""Inside the attention kernels: which keys a query sees, where they are in the cache, and the sum over them.

Scores are logarithms of base 2: factors, slopes and sinks come multiplied by log2(e).
"""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast, dot, from_float8


@triton.jit
def first_key(place, WINDOW: tl.constexpr, CHUNK: tl.constexpr):
    """Return the first position that a query at `place` sees; a window or chunk of 0 is none."""
    first = place * 0
    if WINDOW > 0:
        first = tl.maximum(first, place - WINDOW + 1)
    if CHUNK > 0:
        first = tl.maximum(first, place // CHUNK * CHUNK)
    return first


@triton.jit
def lanes(first, count, length, query, head, QUERIES: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr):
    """Return what each of `BLOCK_M` lanes is: queries from number `query` of a row on, each with all its heads.

    Args:
        first, count, length: The row's first token in the step, its tokens there, and those in the cache.
        head: The kv head that the heads share.

    Returns:
        `(BLOCK_M,)` each: whether it is any; its number in the row; its token in the step, int64; its head; its
        position, -1 if it is none.
    """
    m = tl.arange(0, BLOCK_M)
    mine = query + m // GROUP
    live = (m < QUERIES * GROUP) & (mine < count)
    places = tl.where(live, length - count + mine, -1)
    return live, mine, (first + mine).to(tl.int64), head * GROUP + m % GROUP, places


@triton.jit
def cache_offsets(blocks, places, block_stride, token_stride, BLOCK_SIZE: tl.constexpr):
    """Return where in a cache the tokens at `places` of a row are, whose blocks these are: int64, in elements."""
    return blocks.to(tl.int64) * block_stride + (places % BLOCK_SIZE) * token_stride


@triton.jit
def load_stored(pointers, mask, dtype: tl.constexpr, FLOAT8: tl.constexpr):
    """Return elements of a cache in `dtype`, 0 where they are masked. `FLOAT8`: 1 is e4m3fn, 2 is e5m2, 0 neither."""
    raw = tl.load(pointers, mask=mask, other=0)
    if FLOAT8 == 0:
        y = cast(raw, dtype)
    else:
        y = cast(from_float8(raw, FLOAT8 == 2), dtype)
    return y


@triton.jit
def bend(scores, outer):
    """Return `outer * tanh(scores)`."""
    shrunk = tl.exp2(tl.abs(scores) * -2.8853900817779268)  # exp(-2 |x|)
    size = (1 - shrunk) / (1 + shrunk)
    return tl.where(scores < 0, -size, size) * outer


@triton.jit
def attend_keys(
    q,
    places,
    least,
    begin,
    end,
    table,
    keys,
    values,
    slopes,
    inner,
    outer,
    block_stride,
    token_stride,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    CHUNK: tl.constexpr,
    CAPPED: tl.constexpr,
    ALIBI: tl.constexpr,
    FLOAT8: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Attend to the keys from `least` to `end - 1` of one row and one kv head.

    Args:
        q: `(M, D)`, D at least `HEAD_DIM`.
        places: `(M,)` positions of the queries, which see no later key.
        begin: A multiple of `BLOCK_N` that is no greater than `least`: a query meets the same tiles of keys whatever
            other queries are computed beside it.
        table: The row's blocks.
        keys, values: Where the head's keys and values are in block 0.
        slopes: `(M,)` of ALiBi.
        inner: Factor of the products.
        outer: The cap, with `CAPPED`.
        ALIBI: 1: by distance; 2: by its root; 0: not at all.

    Returns:
        `(M, D)` sums of values, `(M,)` greatest scores, and `(M,)` sums of `2 ** (score - greatest)`: all float32.
    """
    BLOCK_M: tl.constexpr = q.shape[0]
    BLOCK_D: tl.constexpr = q.shape[1]
    dims = tl.arange(0, BLOCK_D)
    real = dims < HEAD_DIM
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    sums = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = (n >= least) & (n < end)  # nothing else is read: a window's old blocks belong to others
        blocks = tl.load(table + n // BLOCK_SIZE, mask=live, other=0)
        at = cache_offsets(blocks, n, block_stride, token_stride, BLOCK_SIZE)
        k = load_stored(keys + at[None, :] + dims[:, None], live[None, :] & real[:, None], q.dtype, FLOAT8)
        scores = dot(q, k, tl.zeros([BLOCK_M, BLOCK_N], tl.float32)) * inner
        if CAPPED:
            scores = bend(scores, outer)
        away = places[:, None] - n[None, :]
        if ALIBI == 1:
            scores -= slopes[:, None] * away.to(tl.float32)
        if ALIBI == 2:
            scores -= slopes[:, None] * tl.sqrt(tl.maximum(away, 0).to(tl.float32))
        seen = live[None, :] & (away >= 0) & (n[None, :] >= first_key(places, WINDOW, CHUNK)[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)  # a query that has seen nothing yet
        shares = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(top - base)
        total = total * shrink + tl.sum(shares, 1)
        v = load_stored(values + at[:, None] + dims[None, :], live[:, None] & real[None, :], q.dtype, FLOAT8)
        sums = dot(cast(shares, q.dtype), v, sums * shrink[:, None])
        top = higher
    return sums, top, total


@triton.jit
def mean_of(sums, top, total, sinks, scale, SINKS: tl.constexpr):
    """Return the output of what `attend_keys` returned: sinks `(M,)` stand in the softmax, values have a scale.

    A query that sees nothing gets zeros.
    """
    if SINKS:
        higher = tl.maximum(top, sinks)
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.exp2(sinks - higher)
        sums = sums * shrink[:, None]
    return sums * (scale / tl.where(total == 0, 1.0, total))[:, None]
