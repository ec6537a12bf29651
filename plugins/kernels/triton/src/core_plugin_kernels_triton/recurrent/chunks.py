"""Terms of linear attention in a chunk of tokens that hold for any state before it: those of all chunks at once.

In the words of `core.ops.chunks`, with T = (1 + A)^-1 and S the state before a chunk of C tokens,

    U = X - W S                    with X = T (beta * v), W = T (beta * k D),
    out = P X + (q D - P W) S      and behind the chunk S is D S + (D k)^T U.

`chunk_kernel` computes P X, and with the delta rule X, -W, and q D - P W; `recurrent/steps.py` the rest, which is three
products for each chunk. Without the delta rule X is v, and W is nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast, dot
from core_plugin_kernels_triton.recurrent.inverse import inverse


@triton.jit
def tile_row(tile, starts, rows, begin, end, CHUNK: tl.constexpr):
    """Return the row that a tile of `CHUNK` tokens belongs to, and the tile's number in it, which may be too great.

    Of each row there are its tokens from `begin` to `end` of the step. The first tile of row r is their offset from
    `begin` over `CHUNK`, plus r, which leaves each row as many as it needs, and a spare one.
    """
    low = rows * 0
    high = low + rows
    while high - low > 1:
        middle = (low + high) // 2
        offset = tl.minimum(tl.maximum(tl.load(starts + middle), begin), end) - begin
        begun = offset // CHUNK + middle <= tile
        low = tl.where(begun, middle, low)
        high = tl.where(begun, high, middle)
    offset = tl.minimum(tl.maximum(tl.load(starts + low), begin), end) - begin
    return low, tile - offset // CHUNK - low


@triton.jit
def kept_between(lost, CHUNK: tl.constexpr):
    """Return what is kept of token s behind token t, `(t, s)`, of logarithms `lost (CHUNK,)`; 0 where s > t.

    Exponents are sums of what lies between, never differences: so none is positive, and one may be -infinity.
    """
    t = tl.arange(0, CHUNK)[:, None]
    s = tl.arange(0, CHUNK)[None, :]
    sums = tl.cumsum(tl.where(t > s, lost[:, None], 0.0), 0)
    return tl.where(t >= s, tl.exp(sums), 0.0)


@triton.jit
def products(
    one,
    other,
    live,
    size,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    TYPE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return each line of `one` times each of `other`, `(CHUNK, CHUNK)`: addresses of lines of so many numbers."""
    total = tl.zeros([CHUNK, CHUNK], tl.float32)
    for column in range(0, size, BLOCK):
        dims = (column + tl.arange(0, BLOCK))[None, :]
        here = live[:, None] & (dims < size)
        left = cast(tl.load(one + dims, mask=here, other=0.0), TYPE)
        right = cast(tl.load(other + dims, mask=here, other=0.0), TYPE)
        total = dot(left, tl.trans(right), total, PRECISION)
    return total


@triton.jit(do_not_specialize=["rows", "begin", "end"], do_not_specialize_on_alignment=["starts"])
def chunk_kernel(
    q,
    k,
    v,
    decay,
    beta,
    out,
    kept,
    pseudo,
    reads,
    queries,
    starts,
    rows,
    begin,
    end,
    scale,
    heads,
    group,
    key_dim,
    value_dim,
    q_token,
    q_head,
    k_token,
    k_head,
    v_token,
    v_head,
    DELTA: tl.constexpr,
    FEWEST: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    TYPE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute what one head's tokens in one chunk give, in rows of `FEWEST` and more, from `begin` to `end`.

    What is written is numbered from `begin` on, but for `out`:
        out: P X, `(T, heads, value_dim)`, scaled.
        kept: `(end - begin, heads, 2)` float32: what is kept of what came before the chunk behind a token, and what is
            kept of the token behind the chunk.
        pseudo, reads, queries: X `(.., heads, value_dim)`, -W `(.., heads, key_dim)`, and q D - P W of the same shape,
            scaled; of dtype `TYPE`, in which all products are taken.
    """
    head = tl.program_id(0)
    row, number = tile_row(tl.program_id(1), starts, rows, begin, end, CHUNK)
    first = tl.load(starts + row)
    last = tl.load(starts + row + 1)
    if last - first < FEWEST:
        return
    first = tl.maximum(first, begin) + number * CHUNK
    last = tl.minimum(last, end)
    if first >= last:
        return
    tokens = (first + tl.arange(0, CHUNK)).to(tl.int64)
    live = tokens < last
    columns = tl.arange(0, BLOCK)
    q += head // group * q_head + tokens[:, None] * q_token
    k += head // group * k_head + tokens[:, None] * k_token
    v += head * v_head + tokens[:, None] * v_token
    own = tokens * heads + head
    at = (tokens - begin) * heads + head
    lost = cast(tl.load(decay + own, mask=live, other=0.0), tl.float32)
    line = tl.arange(0, CHUNK)
    since = tl.exp(tl.cumsum(lost, 0))
    if DELTA:
        # Ahead of everything else, so that little is held in registers beside it.
        share = cast(tl.load(beta + own, mask=live, other=0.0), tl.float32)
        among = products(k, k, live, key_dim, CHUNK, BLOCK, TYPE, PRECISION)
        among = tl.where(line[:, None] > line[None, :], among * kept_between(lost, CHUNK) * share[:, None], 0.0)
        solved = inverse(among, CHUNK, PRECISION) * share[None, :]
        by_value = cast(solved, TYPE)
        by_key = cast(solved * since[None, :], TYPE)
    between = kept_between(lost, CHUNK)
    # Behind the last token nothing decays: the last line is what is kept behind the chunk.
    tail = tl.sum(tl.where((line == CHUNK - 1)[:, None], between, 0.0), 0)
    tl.store(kept + at * 2, since, mask=live)
    tl.store(kept + at * 2 + 1, tail, mask=live)
    met = cast(products(q, k, live, key_dim, CHUNK, BLOCK, TYPE, PRECISION) * between * scale, TYPE)
    if DELTA:
        for column in range(0, key_dim, BLOCK):
            dims = (column + columns)[None, :]
            here = live[:, None] & (dims < key_dim)
            key = cast(tl.load(k + dims, mask=here, other=0.0), TYPE)
            read = cast(-dot(by_key, key, tl.zeros([CHUNK, BLOCK], tl.float32), PRECISION), TYPE)
            tl.store(reads + at[:, None] * key_dim + dims, read, mask=here)
            query = cast(tl.load(q + dims, mask=here, other=0.0), tl.float32)
            query = dot(met, read, query * (since * scale)[:, None], PRECISION)
            tl.store(queries + at[:, None] * key_dim + dims, cast(query, TYPE), mask=here)
    for column in range(0, value_dim, BLOCK):
        dims = (column + columns)[None, :]
        here = live[:, None] & (dims < value_dim)
        value = cast(tl.load(v + dims, mask=here, other=0.0), TYPE)
        if DELTA:
            value = cast(dot(by_value, value, tl.zeros([CHUNK, BLOCK], tl.float32), PRECISION), TYPE)
            tl.store(pseudo + at[:, None] * value_dim + dims, value, mask=here)
        found = dot(met, value, tl.zeros([CHUNK, BLOCK], tl.float32), PRECISION)
        tl.store(out + own[:, None] * value_dim + dims, cast(found, out.dtype.element_ty), mask=here)
