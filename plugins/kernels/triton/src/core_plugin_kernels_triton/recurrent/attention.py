"""Linear attention with and without the delta rule; the form as in `core.ops.recurrent.linear_attention`.

Rows of a few tokens are computed token by token, by the kernel that is here: a program has some columns of the state of
one head in one row. Others go by chunks (`prompts`).
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from core.api.states import State
from core_plugin_kernels_triton.compat import cast
from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.tiles import power_of_two
from core_plugin_kernels_triton.recurrent.prompts import launch_chunks
from core_plugin_kernels_triton.recurrent.rows import dense, on_device, tiles


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
    FEWEST: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Attend with some columns of one head's values in one row of fewer than `FEWEST` tokens, one by one."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    first = tl.load(starts + row)
    count = tl.load(starts + row + 1) - first
    if (count == 0) | (count >= FEWEST):
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
    for behind in range(count):
        token = (first + behind).to(tl.int64)
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
        # A value may be infinite, which lines that are none must not be.
        matrix += tl.where(keyed[:, None], key[:, None] * value[None, :], 0.0)
        found = tl.sum(query[:, None] * matrix, 0)
        tl.store(out + (token * heads + head) * value_dim + columns, cast(found, out.dtype.element_ty), mask=valued)
    tl.store(state, cast(matrix, memory.dtype.element_ty), mask=there)


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor | None, state: State, scale: float
) -> Tensor:
    """Attend by a matrix that gathers keys and values and decays: `(T, heads, value_dim)`."""
    out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    if out.numel():
        starts = state.rows.starts
        long = np.diff(starts) >= tiles(v.device)["attention"]["fewest"]
        beta = None if beta is None else beta.contiguous()
        given = (dense(q), dense(k), dense(v), decay.contiguous(), beta, out, *on_device(state), scale)
        if not long.all():
            launch_tokens(*given)
        if long.any():
            places = np.flatnonzero(long)
            launch_chunks(*given, int(starts[places[0]]), int(starts[places[-1] + 1]))
    return out


@launch(
    "Tensor q, Tensor k, Tensor v, Tensor decay, Tensor? beta, Tensor(a!) out, Tensor(b!) memory, Tensor slots, "
    "Tensor fresh, Tensor starts, float scale"
)
def launch_tokens(
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
) -> None:
    """Write what tokens of rows that are short find to `out`, and the states."""
    (_, heads, value_dim), key_dim = v.shape, k.shape[2]
    per_key, table = decay.dim() == v.dim(), tiles(v.device)["attention"]
    block = max(16, min(table["values"], power_of_two(value_dim)))
    linear_kernel[slots.shape[0], heads, -(-value_dim // block)](
        *(q, k, v, decay, beta, out, memory, slots, fresh, starts, scale),
        *(heads, heads // k.shape[1], key_dim, value_dim),
        *(q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1), memory.stride(0)),
        DELTA=beta is not None,
        PER_KEY=per_key,
        FEWEST=table["fewest"],
        BLOCK_K=max(16, power_of_two(key_dim)),
        BLOCK_V=block,
        num_warps=4,
    )
