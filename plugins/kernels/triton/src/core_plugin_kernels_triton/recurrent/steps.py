"""How the state of linear attention goes from chunk to chunk, and what it gives: products, and nothing else."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast, dot


@triton.jit(do_not_specialize=["begin", "end"], do_not_specialize_on_alignment=["slots", "fresh", "starts"])
def step_kernel(
    q,
    k,
    v,
    out,
    memory,
    kept,
    pseudo,
    reads,
    queries,
    keys,
    slots,
    fresh,
    starts,
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
    slot_stride,
    DELTA: tl.constexpr,
    PER_KEY: tl.constexpr,
    FEWEST: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    TYPE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Take some columns of one head's state through a row's chunks, from `begin` to `end` of the step.

    Rows have `FEWEST` tokens or more. `chunk_kernel`, or with `PER_KEY` `key_chunk_kernel`, has written `out`, which is
    added to, and what it says of `kept`, `pseudo`, `reads`, `queries` and `keys`. The state is float32, and is rounded
    to `TYPE` where it is multiplied with.
    """
    head = tl.program_id(1)
    row = tl.program_id(2)
    first = tl.load(starts + row)
    last = tl.load(starts + row + 1)
    if last - first < FEWEST:
        return
    dims = tl.arange(0, BLOCK_K)
    # Where the row began before, an earlier launch has left the state.
    known = (tl.load(fresh + row + dims * 0) == 0) | (first + dims * 0 < begin)
    first = tl.maximum(first, begin)
    last = tl.minimum(last, end)
    if first >= last:
        return
    columns = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    keyed = dims < key_dim
    valued = columns < value_dim
    there = keyed[:, None] & valued[None, :]
    state = memory + tl.load(slots + row) * slot_stride + head * key_dim * value_dim
    state = state + dims[:, None] * value_dim + columns[None, :]
    matrix = cast(tl.load(state, mask=there & known[:, None], other=0.0), tl.float32)
    k += head // group * k_head
    for chunk in range(first, last, CHUNK):
        tokens = (chunk + tl.arange(0, CHUNK)).to(tl.int64)
        live = tokens < last
        here = live[:, None] & keyed[None, :]
        mine = live[:, None] & valued[None, :]
        at = (tokens - begin) * heads + head
        to = out + (tokens[:, None] * heads + head) * value_dim + columns[None, :]
        held = cast(matrix, TYPE)
        if PER_KEY:
            tile = (first - begin) // CHUNK + row + (chunk - first) // CHUNK
            whole = tl.load(kept + (tile * heads + head).to(tl.int64) * key_dim + dims, mask=keyed, other=0.0)[:, None]
            key = tl.load(keys + at[:, None] * key_dim + dims[None, :], mask=here, other=0.0)
        else:
            before = (tl.minimum(chunk + CHUNK, last) - 1 - begin).to(tl.int64) * heads + head
            whole = tl.load(kept + before * 2)
            key = cast(tl.load(k + tokens[:, None] * k_token + dims[None, :], mask=here, other=0.0), TYPE)
        if DELTA or PER_KEY:
            query = tl.load(queries + at[:, None] * key_dim + dims[None, :], mask=here, other=0.0)
            found = dot(query, held, cast(tl.load(to, mask=mine, other=0.0), tl.float32), PRECISION)
        if DELTA:
            read = tl.load(reads + at[:, None] * key_dim + dims[None, :], mask=here, other=0.0)
            value = tl.load(pseudo + at[:, None] * value_dim + columns[None, :], mask=mine, other=0.0)
            value = dot(read, held, cast(value, tl.float32), PRECISION)
        else:
            given = v + head * v_head + tokens[:, None] * v_token + columns[None, :]
            value = cast(tl.load(given, mask=mine, other=0.0), tl.float32)
        if not (DELTA or PER_KEY):
            asks = q + head // group * q_head + tokens[:, None] * q_token + dims[None, :]
            query = cast(tl.load(asks, mask=here, other=0.0), TYPE)
            since = tl.load(kept + at * 2, mask=live, other=0.0) * scale
            found = dot(query, held, tl.zeros([CHUNK, BLOCK_V], tl.float32), PRECISION) * since[:, None]
            found += cast(tl.load(to, mask=mine, other=0.0), tl.float32)
        tl.store(to, cast(found, out.dtype.element_ty), mask=mine)
        if not PER_KEY:
            value *= tl.load(kept + at * 2 + 1, mask=live, other=0.0)[:, None]
        matrix = dot(tl.trans(key), cast(value, TYPE), matrix * whole, PRECISION)
    tl.store(state, cast(matrix, memory.dtype.element_ty), mask=there)
