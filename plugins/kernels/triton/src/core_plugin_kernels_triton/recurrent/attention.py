"""Linear attention with and without the delta rule; the form as in `core.ops.recurrent.linear_attention`.

Rows of a few tokens, and heads whose keys decay one by one, are computed token by token; others by chunks, as
`core.ops.chunks` explains. A program has some columns of the state of one head in one row.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from core.api.states import State
from core_plugin_kernels_triton.compat import cast, dot
from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.tiles import power_of_two
from core_plugin_kernels_triton.recurrent.rows import dense, on_device, tiles


@triton.jit
def kept_between(lost, CHUNK: tl.constexpr):
    """Return what is kept of token s behind token t, `(t, s)`, of logarithms `lost (CHUNK,)`; 0 where s > t.

    Exponents are sums of what lies between, never differences.
    """
    t = tl.arange(0, CHUNK)[:, None]
    s = tl.arange(0, CHUNK)[None, :]
    sums = tl.zeros([CHUNK, CHUNK], tl.float32)
    for j in range(1, CHUNK):
        one = tl.sum(tl.where(tl.arange(0, CHUNK) == j, lost, 0.0), 0)
        sums += tl.where((t >= j) & (s < j), one, 0.0)
    return tl.where(t >= s, tl.exp(sums), 0.0)


@triton.jit
def solved(among, right, CHUNK: tl.constexpr):
    """Return U of `(1 + among) U = right`, `among (CHUNK, CHUNK)` being strictly lower triangular."""
    line = tl.arange(0, CHUNK)[:, None]
    for i in range(1, CHUNK):
        row = tl.sum(tl.where(line == i, among, 0.0), 0)
        right = tl.where(line == i, right - tl.sum(row[:, None] * right, 0)[None, :], right)
    return right


@triton.jit(do_not_specialize_on_alignment=["slots", "fresh", "starts"])
def linear_kernel(
    q,
    k,
    v,
    decay,
    beta,
    out,
    memory,
    slots,
    fresh,
    starts,
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
    CHUNK: tl.constexpr,
    FEWEST: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Attend with some columns of one head's values in one row.

    `CHUNK` 1: token by token, rows of fewer than `FEWEST` tokens (0: all). Else by chunks, rows of at least so many.
    """
    row = tl.program_id(0)
    head = tl.program_id(1)
    first = tl.load(starts + row)
    count = tl.load(starts + row + 1) - first
    if count == 0:
        return
    if CHUNK == 1:
        left_out = (FEWEST > 0) & (count >= FEWEST)
    else:
        left_out = count < FEWEST
    if left_out:
        return
    dims = tl.arange(0, BLOCK_K)
    columns = tl.program_id(2) * BLOCK_V + tl.arange(0, BLOCK_V)
    keyed = dims < key_dim
    valued = columns < value_dim
    there = keyed[:, None] & valued[None, :]
    state = memory + tl.load(slots + row) * slot_stride + head * key_dim * value_dim
    state = state + dims[:, None] * value_dim + columns[None, :]
    known = tl.load(fresh + row + dims * 0) == 0
    matrix = cast(tl.load(state, mask=there & known[:, None], other=0.0), tl.float32)
    q += head // group * q_head
    k += head // group * k_head
    v += head * v_head
    for begin in range(0, count, CHUNK):
        if CHUNK == 1:
            token = (first + begin).to(tl.int64)
            query = cast(tl.load(q + token * q_token + dims, mask=keyed, other=0.0), tl.float32) * scale
            key = cast(tl.load(k + token * k_token + dims, mask=keyed, other=0.0), tl.float32)
            value = cast(tl.load(v + token * v_token + columns, mask=valued, other=0.0), tl.float32)
            if PER_KEY:
                lost = tl.load(decay + (token * heads + head) * key_dim + dims, mask=keyed, other=0.0)
                matrix *= tl.exp(cast(lost, tl.float32))[:, None]
            else:
                matrix *= tl.exp(cast(tl.load(decay + token * heads + head), tl.float32))
            if DELTA:
                share = cast(tl.load(beta + token * heads + head), tl.float32)
                value = (value - tl.sum(key[:, None] * matrix, 0)) * share
            matrix += key[:, None] * value[None, :]
            found = tl.sum(query[:, None] * matrix, 0)
            tl.store(out + (token * heads + head) * value_dim + columns, cast(found, out.dtype.element_ty), mask=valued)
        else:
            place = begin + tl.arange(0, CHUNK)
            live = place < count
            tokens = (first + place).to(tl.int64)
            here = live[:, None] & keyed[None, :]
            queries = cast(tl.load(q + tokens[:, None] * q_token + dims[None, :], mask=here, other=0.0), tl.float32)
            keys = cast(tl.load(k + tokens[:, None] * k_token + dims[None, :], mask=here, other=0.0), tl.float32)
            mine = live[:, None] & valued[None, :]
            values = cast(tl.load(v + tokens[:, None] * v_token + columns[None, :], mask=mine, other=0.0), tl.float32)
            lost = cast(tl.load(decay + tokens * heads + head, mask=live, other=0.0), tl.float32)
            since = tl.exp(tl.cumsum(lost, 0))[:, None]
            kept = kept_between(lost, CHUNK)
            nothing = tl.zeros([CHUNK, BLOCK_V], tl.float32)
            none = tl.zeros([CHUNK, CHUNK], tl.float32)
            if DELTA:
                share = cast(tl.load(beta + tokens * heads + head, mask=live, other=0.0), tl.float32)[:, None]
                among = dot(keys, tl.trans(keys), none) * kept * share
                line = tl.arange(0, CHUNK)
                among = tl.where(line[:, None] > line[None, :], among, 0.0)
                values = solved(among, share * (values - since * dot(keys, matrix, nothing)), CHUNK)
            met = dot(queries, tl.trans(keys), none) * kept
            found = dot(met, values, since * dot(queries, matrix, nothing)) * scale
            to = out + (tokens[:, None] * heads + head) * value_dim + columns[None, :]
            tl.store(to, cast(found, out.dtype.element_ty), mask=mine)
            # Behind the last token nothing decays: the last line is what is kept behind the chunk.
            last = tl.arange(0, CHUNK)[:, None] == CHUNK - 1
            tail = tl.sum(tl.where(last, kept, 0.0), 0)[:, None]
            matrix = dot(tl.trans(keys * tail), values, matrix * tl.exp(tl.sum(lost, 0)))
    tl.store(state, cast(matrix, memory.dtype.element_ty), mask=there)


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor | None, state: State, scale: float
) -> Tensor:
    """Attend by a matrix that gathers keys and values and decays: `(T, heads, value_dim)`."""
    out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    if out.numel():
        fewest = tiles(v.device)["attention"]["fewest"] if decay.dim() < v.dim() else 0
        counts = np.diff(state.rows.starts)
        short = bool((counts < fewest).any()) if fewest else True
        long = bool((counts >= fewest).any()) if fewest else False
        q, k, v = dense(q), dense(k), dense(v)
        beta = None if beta is None else beta.contiguous()
        launch_linear(q, k, v, decay.contiguous(), beta, out, *on_device(state), scale, short, long)
    return out


@launch(
    "Tensor q, Tensor k, Tensor v, Tensor decay, Tensor? beta, Tensor(a!) out, Tensor(b!) memory, Tensor slots, "
    "Tensor fresh, Tensor starts, float scale, bool short, bool long"
)
def launch_linear(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    beta: Tensor | None,
    out: Tensor,
    memory: Tensor,
    slots: Tensor,
    fresh: Tensor,
    starts: Tensor,
    scale: float,
    short: bool,
    long: bool,
) -> None:
    """Write what tokens find to `out`, and the states: of rows that are short, and of those that are long."""
    (_, heads, value_dim), key_dim = v.shape, k.shape[2]
    per_key, table = decay.dim() == v.dim(), tiles(v.device)["attention"]
    block = max(16, min(table["values"], power_of_two(value_dim)))
    for wanted, chunk in ((short, 1), (long, table["chunk"])):
        if wanted:
            linear_kernel[slots.shape[0], heads, -(-value_dim // block)](
                *(q, k, v, decay, beta, out, memory, slots, fresh, starts, scale),
                *(heads, heads // k.shape[1], key_dim, value_dim),
                *(q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1), memory.stride(0)),
                DELTA=beta is not None,
                PER_KEY=per_key,
                CHUNK=chunk,
                FEWEST=0 if per_key else table["fewest"],
                BLOCK_K=max(16, power_of_two(key_dim)),
                BLOCK_V=block,
                num_warps=4,
            )
