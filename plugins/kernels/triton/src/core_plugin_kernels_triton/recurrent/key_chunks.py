"""Terms as in `chunks`, where each dimension of the keys decays on its own (Kimi Linear).

What is kept of a key differs from pair to pair of tokens, so products need it in two parts, one for each token. Two
tokens of different blocks of 16 have them: what is kept from the one to the end of the block before the other's, and
from there to the other. Within a block each token is compared with the others as it is. All exponents are sums of what
lies between, and none is positive.
"""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast, dot
from core_plugin_kernels_triton.recurrent.chunks import tile_row
from core_plugin_kernels_triton.recurrent.inverse import inverse, spread


@triton.jit
def across(left, key, lost, following, total, CHUNK: tl.constexpr, TYPE: tl.constexpr, PRECISION: tl.constexpr):
    """Add `left[t] D[t, s] . key[s]` of tokens in different blocks to `total (CHUNK, CHUNK)`; `(CHUNK, BLOCK)` all.

    `lost` is of each token, `following` of the one behind it, which is 0 for the last.
    """
    line = tl.arange(0, CHUNK)
    for block in tl.static_range(1, CHUNK // 16):
        mine = (line // 16 == block)[:, None]
        before = (line < 16 * block)[:, None]
        since = tl.exp(tl.cumsum(tl.where(mine, lost, 0.0), 0))
        until = tl.exp(tl.cumsum(tl.where((line + 1 < 16 * block)[:, None], following, 0.0), 0, reverse=True))
        one = cast(tl.where(mine, left * since, 0.0), TYPE)
        other = cast(tl.where(before, key * until, 0.0), TYPE)
        total = dot(one, tl.trans(other), total, PRECISION)
    return total


@triton.jit(do_not_specialize=["rows", "begin", "end"], do_not_specialize_on_alignment=["starts"])
def key_chunk_kernel(
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
    keys,
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
    """Do what `chunk_kernel` does; `queries` is written without the delta rule, too, and

    kept: `(tiles, heads, key_dim)` float32: what is kept of the state behind the chunk.
    keys: `(end - begin, heads, key_dim)`: what is kept of keys behind the chunk.
    """
    BLOCKS: tl.constexpr = CHUNK // 16
    head = tl.program_id(0)
    tile = tl.program_id(1)
    row, number = tile_row(tile, starts, rows, begin, end, CHUNK)
    first = tl.load(starts + row)
    last = tl.load(starts + row + 1)
    if last - first < FEWEST:
        return
    first = tl.maximum(first, begin) + number * CHUNK
    last = tl.minimum(last, end)
    if first >= last:
        return
    line = tl.arange(0, CHUNK)
    short = tl.arange(0, 16)
    tokens = (first + line).to(tl.int64)
    live = tokens < last
    columns = tl.arange(0, BLOCK)
    q += head // group * q_head
    k += head // group * k_head
    v += head * v_head
    own = tokens * heads + head
    at = (tokens - begin) * heads + head
    among = tl.zeros([CHUNK, CHUNK], tl.float32)
    met = tl.zeros([CHUNK, CHUNK], tl.float32)
    among_near = tl.zeros([BLOCKS, 16, 16], tl.float32)
    met_near = tl.zeros([BLOCKS, 16, 16], tl.float32)
    for column in range(0, key_dim, BLOCK):
        dims = (column + columns)[None, :]
        here = live[:, None] & (dims < key_dim)
        after = ((tokens + 1 < last) & (line < CHUNK - 1))[:, None] & (dims < key_dim)
        query = cast(tl.load(q + tokens[:, None] * q_token + dims, mask=here, other=0.0), tl.float32)
        key = cast(tl.load(k + tokens[:, None] * k_token + dims, mask=here, other=0.0), tl.float32)
        lost = cast(tl.load(decay + own[:, None] * key_dim + dims, mask=here, other=0.0), tl.float32)
        following = tl.load(decay + (own + heads)[:, None] * key_dim + dims, mask=after, other=0.0)
        following = cast(following, tl.float32)
        tail = cast(key * tl.exp(tl.cumsum(following, 0, reverse=True)), TYPE)
        tl.store(keys + at[:, None] * key_dim + dims, tail, mask=here)
        whole = kept + (tile * heads + head).to(tl.int64) * key_dim + column + columns
        tl.store(whole, tl.exp(tl.sum(lost, 0)), mask=column + columns < key_dim)
        met = across(query, key, lost, following, met, CHUNK, TYPE, PRECISION)
        if DELTA:
            among = across(key, key, lost, following, among, CHUNK, TYPE, PRECISION)
        query = tl.reshape(query, (BLOCKS, 16, BLOCK))
        key = tl.reshape(key, (BLOCKS, 16, BLOCK))
        behind = tl.zeros([BLOCKS, 16, BLOCK], tl.float32)  # what is lost behind token j until each of its block
        for i in range(16):
            j = 15 - i
            token = (first + tl.arange(0, BLOCKS) * 16 + j).to(tl.int64)[:, None]
            there = (token < last) & (dims < key_dim)
            other = cast(tl.load(k + token * k_token + dims, mask=there, other=0.0), tl.float32)
            weight = tl.exp(behind) * other[:, None, :]
            fits = (short[None, :, None] >= j) & (short[None, None, :] == j)
            met_near += tl.where(fits, tl.sum(query * weight, 2)[:, :, None], 0.0)
            if DELTA:
                among_near += tl.where(fits, tl.sum(key * weight, 2)[:, :, None], 0.0)
            gone = tl.load(decay + (token * heads + head) * key_dim + dims, mask=there, other=0.0)
            behind += tl.where(short[None, :, None] >= j, cast(gone, tl.float32)[:, None, :], 0.0)
    met = cast((met + spread(met_near, CHUNK)) * scale, TYPE)
    if DELTA:
        share = cast(tl.load(beta + own, mask=live, other=0.0), tl.float32)
        among = (among + spread(among_near, CHUNK)) * share[:, None]
        among = tl.where(line[:, None] > line[None, :], among, 0.0)
        solved = cast(inverse(among, CHUNK, PRECISION) * share[None, :], TYPE)
    for column in range(0, key_dim, BLOCK):
        dims = (column + columns)[None, :]
        here = live[:, None] & (dims < key_dim)
        lost = cast(tl.load(decay + own[:, None] * key_dim + dims, mask=here, other=0.0), tl.float32)
        since = tl.exp(tl.cumsum(lost, 0))
        query = cast(tl.load(q + tokens[:, None] * q_token + dims, mask=here, other=0.0), tl.float32) * since * scale
        if DELTA:
            key = cast(tl.load(k + tokens[:, None] * k_token + dims, mask=here, other=0.0), tl.float32)
            read = dot(solved, cast(key * since, TYPE), tl.zeros([CHUNK, BLOCK], tl.float32), PRECISION)
            read = cast(-read, TYPE)
            tl.store(reads + at[:, None] * key_dim + dims, read, mask=here)
            query = dot(met, read, query, PRECISION)
        tl.store(queries + at[:, None] * key_dim + dims, cast(query, TYPE), mask=here)
    for column in range(0, value_dim, BLOCK):
        dims = (column + columns)[None, :]
        here = live[:, None] & (dims < value_dim)
        value = cast(tl.load(v + tokens[:, None] * v_token + dims, mask=here, other=0.0), TYPE)
        if DELTA:
            value = cast(dot(solved, value, tl.zeros([CHUNK, BLOCK], tl.float32), PRECISION), TYPE)
            tl.store(pseudo + at[:, None] * value_dim + dims, value, mask=here)
        found = dot(met, value, tl.zeros([CHUNK, BLOCK], tl.float32), PRECISION)
        tl.store(out + own[:, None] * value_dim + dims, cast(found, out.dtype.element_ty), mask=here)
