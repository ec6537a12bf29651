"""Recurrences over the tokens of each row, in plain torch.

Shapes: T tokens of a step, row by row. A `State` gives each row's state, which an operation reads, and leaves as it is
behind the row's last token. Sums are float32, or float64 where the state is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import silu

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.states import State


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, state: State, activation: bool) -> Tensor:
    """Convolve each channel with the tokens before: `x (T, channels)` -> `(T, channels)`.

    Args:
        weight: `(channels, width)`; the last column belongs to the token itself.
        bias: `(channels,)`.
        state: `(channels, width - 1)`: what `x` was for the tokens before, the latest last.
        activation: Whether SiLU follows.
    """
    out = torch.empty_like(x)
    width = weight.shape[1]
    wide = torch.promote_types(state.memory.dtype, torch.float32)
    for begin, end, slot, past in rows_of(state):
        line = torch.cat([past.to(wide), x[begin:end].to(wide).T], dim=1)  # (channels, width - 1 + tokens)
        summed = (line.unfold(1, width, 1) * weight.to(wide).unsqueeze(1)).sum(-1)
        if bias is not None:
            summed = summed + bias.to(wide).unsqueeze(1)
        out[begin:end] = (silu(summed) if activation else summed).T.to(x.dtype)
        state.memory[slot] = line[:, line.shape[1] - (width - 1) :]
    return out


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor | None, state: State, scale: float
) -> Tensor:
    """Attend by a matrix that gathers keys and values and decays: `(T, heads, value_dim)`.

    For each token `S = exp(decay) * S + k (x) u` and `out = scale * q @ S`, where `u` is `v`, or, with the delta rule,
    `beta * (v - k @ S)`, S being decayed already.

    Args:
        q, k: `(T, key_heads, key_dim)`; a key head is read by `heads / key_heads` neighbouring heads.
        v: `(T, heads, value_dim)`.
        decay: `(T, heads)` float32, at most 0; or `(T, heads, key_dim)`: each row of S decays on its own.
        beta: `(T, heads)` float32; None: there is no delta rule.
        state: S of each head, `(heads, key_dim, value_dim)`.
    """
    out = torch.empty_like(v)
    group = v.shape[1] // k.shape[1]
    wide = state.memory.dtype
    for begin, end, slot, matrix in rows_of(state):
        for t in range(begin, end):
            key = k[t].to(wide).repeat_interleave(group, dim=0)
            query = q[t].to(wide).repeat_interleave(group, dim=0)
            kept = decay[t].to(wide).exp()
            matrix = matrix * (kept[:, None, None] if kept.ndim == 1 else kept[:, :, None])
            value = v[t].to(wide)
            if beta is not None:
                value = (value - torch.einsum("hk,hkv->hv", key, matrix)) * beta[t].to(wide)[:, None]
            matrix = matrix + key[:, :, None] * value[:, None, :]
            out[t] = (torch.einsum("hk,hkv->hv", query, matrix) * scale).to(v.dtype)
        state.memory[slot] = matrix
    return out


def selective_scan(x: Tensor, step: Tensor, a: Tensor, b: Tensor, c: Tensor, state: State) -> Tensor:
    """Run a state space of a diagonal for each channel: `x (T, channels)` -> `(T, channels)`.

    For each token `h = exp(step * a) * h + step * x * b` and `out = h @ c`.

    Args:
        step: `(T, channels)` float32, positive.
        a: `(channels, state_dim)` float32, negative.
        b, c: `(T, state_dim)`.
        state: h of each channel, `(channels, state_dim)`.
    """
    out = torch.empty_like(x)
    wide = state.memory.dtype
    for begin, end, slot, h in rows_of(state):
        for t in range(begin, end):
            delta = step[t].to(wide)[:, None]
            h = (delta * a.to(wide)).exp() * h + delta * x[t].to(wide)[:, None] * b[t].to(wide)
            out[t] = (h @ c[t].to(wide)).to(x.dtype)
        state.memory[slot] = h
    return out


def gated_recurrence(x: Tensor, decay: Tensor, state: State) -> Tensor:
    """Sum up what decays, channel by channel: `h = exp(decay) * h + x`, `(T, channels)` -> h `(T, channels)`.

    Args:
        decay: `(T, channels)` float32, at most 0.
        state: h of each channel, `(channels,)`.
    """
    out = torch.empty_like(x)
    wide = state.memory.dtype
    for begin, end, slot, h in rows_of(state):
        for t in range(begin, end):
            h = decay[t].to(wide).exp() * h + x[t].to(wide)
            out[t] = h.to(x.dtype)
        state.memory[slot] = h
    return out


def rows_of(state: State) -> Iterator[tuple[int, int, int, Tensor]]:
    """Yield of each row where its tokens begin and end, its slot, and its state before them."""
    starts = state.rows.starts.tolist()
    for begin, end, slot, fresh in zip(starts, starts[1:], state.rows.slots.tolist(), state.rows.fresh.tolist()):
        if end > begin:
            held = state.memory[slot]
            yield begin, end, slot, torch.zeros_like(held) if fresh else held.clone()
