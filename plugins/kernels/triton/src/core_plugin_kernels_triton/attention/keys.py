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
    """Return elements of a cache in `dtype`, 0 where they are masked: a mask of None is none.

    `FLOAT8`: 1 is e4m3fn, 2 is e5m2, 0 neither.
    """
    if mask is None:
        raw = tl.load(pointers)
    else:
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
def tile_offsets(table, start, live, block_stride, token_stride, BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return where in a cache the tokens of a tile of a row are: `(BLOCK_N,)` int64, in elements.

    Args:
        table: The row's blocks.
        start: The tile's first position, a multiple of `BLOCK_N`.
        live: Which of its tokens there are; None: all.
    """
    n = tl.arange(0, BLOCK_N)
    # Where one size divides the other, all but the block's number is the same for every tile, or one number.
    if BLOCK_N % BLOCK_SIZE == 0:
        column = start // BLOCK_SIZE + n // BLOCK_SIZE
        inside = n % BLOCK_SIZE * token_stride
    elif BLOCK_SIZE % BLOCK_N == 0:
        column = start // BLOCK_SIZE + n * 0
        inside = (start % BLOCK_SIZE + n) * token_stride
    else:
        column = (start + n) // BLOCK_SIZE
        inside = (start + n) % BLOCK_SIZE * token_stride
    if live is None:
        blocks = tl.load(table + column)
    else:
        blocks = tl.load(table + column, mask=live, other=0)
    return blocks.to(tl.int64) * block_stride + inside


@triton.jit
def attend_tile(
    q,
    places,
    least,
    start,
    end,
    sums,
    top,
    total,
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
    SEEN: tl.constexpr,
):
    """Return the three results of `attend_keys` with the tile of keys at `start` as well.

    `SEEN`: every query sees all of its keys, and nothing is masked. What a query gets of a tile is the same, bit for
    bit, as where another query beside it sees less.
    """
    BLOCK_M: tl.constexpr = q.shape[0]
    BLOCK_D: tl.constexpr = q.shape[1]
    PLAIN: tl.constexpr = not CAPPED and ALIBI == 0
    n = start + tl.arange(0, BLOCK_N)
    dims = tl.arange(0, BLOCK_D)
    live = None
    there = None
    if not SEEN:
        live = (n >= least) & (n < end)  # nothing else is read: a window's old blocks belong to others
        there = live[:, None] & (dims < HEAD_DIM)[None, :]
    elif HEAD_DIM < BLOCK_D:
        there = (dims < HEAD_DIM)[None, :]
    at = tile_offsets(table, start, live, block_stride, token_stride, BLOCK_SIZE, BLOCK_N)
    at = at[:, None] + dims[None, :]
    k = load_stored(keys + at, there, q.dtype, FLOAT8)
    scores = dot(q, tl.trans(k), tl.zeros([BLOCK_M, BLOCK_N], tl.float32))
    if not PLAIN:
        scores *= inner
    if CAPPED:
        scores = bend(scores, outer)
    away = places[:, None] - n[None, :]
    if ALIBI == 1:
        scores -= slopes[:, None] * away.to(tl.float32)
    if ALIBI == 2:
        scores -= slopes[:, None] * tl.sqrt(tl.maximum(away, 0).to(tl.float32))
    if not SEEN:
        seen = live[None, :] & (away >= 0) & (n[None, :] >= first_key(places, WINDOW, CHUNK)[:, None])
        scores = tl.where(seen, scores, float("-inf"))
    most = tl.max(scores, 1)
    if PLAIN:
        most *= inner
    higher = tl.maximum(top, most)
    base = higher
    if not SEEN:
        base = tl.where(higher == float("-inf"), 0.0, higher)  # a query that has seen nothing yet
    if PLAIN:  # the factor and the difference in one operation
        shares = tl.exp2(tl.fma(scores, inner, -base[:, None]))
    else:
        shares = tl.exp2(scores - base[:, None])
    shrink = tl.exp2(top - base)
    total = total * shrink + tl.sum(shares, 1)
    v = load_stored(values + at, there, q.dtype, FLOAT8)
    sums = dot(cast(shares, q.dtype), v, sums * shrink[:, None])
    return sums, higher, total


@triton.jit
def attend_keys(
    q,
    places,
    least,
    begin,
    end,
    seen_from,
    seen_to,
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
    PARTED: tl.constexpr,
):
    """Attend to the keys from `least` to `end - 1` of one row and one kv head.

    Args:
        q: `(M, D)`, D at least `HEAD_DIM`.
        places: `(M,)` positions of the queries, which see no later key.
        begin: A multiple of `BLOCK_N` that is no greater than `least`: a query meets the same tiles of keys whatever
            other queries are computed beside it.
        seen_from, seen_to: Every query sees the keys from the one to before the other, of which there may be none.
        table: The row's blocks.
        keys, values: Where the head's keys and values are in block 0.
        slopes: `(M,)` of ALiBi.
        inner: Factor of the products, above 0.
        outer: The cap, with `CAPPED`.
        ALIBI: 1: by distance; 2: by its root; 0: not at all.
        PARTED: Tiles of keys that every query sees have a loop of their own, without masks. It pays where products
            take the time; where memory does, one loop loads ahead without a break.

    Returns:
        `(M, D)` sums of values, `(M,)` greatest scores, and `(M,)` sums of `2 ** (score - greatest)`: all float32.
    """
    BLOCK_M: tl.constexpr = q.shape[0]
    BLOCK_D: tl.constexpr = q.shape[1]
    EDGED: tl.constexpr = WINDOW > 0 or CHUNK > 0
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    sums = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    seen_begin = begin
    seen_end = begin
    if PARTED:
        if EDGED:
            seen_begin = tl.minimum((seen_from + BLOCK_N - 1) // BLOCK_N, (end + BLOCK_N - 1) // BLOCK_N) * BLOCK_N
        seen_end = tl.maximum(seen_begin, tl.minimum(seen_to, end) // BLOCK_N * BLOCK_N)
    # Before the keys that all see, those, and after them.
    for part in tl.static_range(0 if PARTED and EDGED else 1 if PARTED else 2, 3):
        first = begin if part == 0 else seen_begin if part == 1 else seen_end
        last = seen_begin if part == 0 else seen_end if part == 1 else end
        for start in range(first, last, BLOCK_N):
            sums, top, total = attend_tile(
                q,
                places,
                least,
                start,
                end,
                sums,
                top,
                total,
                table,
                keys,
                values,
                slopes,
                inner,
                outer,
                block_stride,
                token_stride,
                HEAD_DIM,
                BLOCK_SIZE,
                WINDOW,
                CHUNK,
                CAPPED,
                ALIBI,
                FLOAT8,
                BLOCK_N,
                part == 1,
            )
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
