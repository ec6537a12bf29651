"""Recurrences over the tokens of each row, in plain torch.

Shapes: T tokens of a step, row by row. A `State` gives each row's state, which an operation reads, and leaves as it is
behind the row's last token. Sums are float32, or float64 where the state is.

Rows of several tokens are computed one after the other, and the host reads their slots. Where all rows have one token,
and the device has memory of its own, all are computed at once and the host reads nothing: graphs can be made of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import silu

from core.ops.chunks import FEWEST, by_chunk

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
    if _at_once(state):
        lines = torch.cat([_held(state).to(wide), x.to(wide).unsqueeze(2)], dim=2)  # (T, channels, width)
        found = (lines * weight.to(wide)).sum(-1)
        found = found if bias is None else found + bias.to(wide)
        _keep(state, lines[:, :, 1:])
        return (silu(found) if activation else found).to(x.dtype)
    for begin, end, slot, past in _rows(state):
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
    if _at_once(state):
        out, matrix = _one_token(q, k, v, decay, beta, _held(state), scale)
        _keep(state, matrix)
        return out
    return _attend(q, k, v, decay, beta, state, scale, FEWEST)


def linear_attention_by_token(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor | None, state: State, scale: float
) -> Tensor:
    """`linear_attention` as it is written, whatever the rows' lengths: what chunks and kernels are compared with."""
    return _attend(q, k, v, decay, beta, state, scale, len(v) + 1)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor | None, state: State, scale: float, fewest: int
) -> Tensor:
    """Attend: rows of `fewest` tokens or more by chunks, the others token by token."""
    out = torch.empty_like(v)
    for begin, end, slot, matrix in _rows(state):
        of, form = slice(begin, end), by_chunk if end - begin >= fewest else _by_token
        given = (q[of], k[of], v[of], decay[of], None if beta is None else beta[of])
        out[of], state.memory[slot] = form(*given, matrix, scale)
    return out


def _by_token(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor | None, matrix: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Return what the tokens of a row find, and its state behind them."""
    out = torch.empty_like(v)
    for t in range(len(v)):
        out[t], matrix = _one_token(q[t], k[t], v[t], decay[t], None if beta is None else beta[t], matrix, scale)
    return out, matrix


def _one_token(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor | None, matrix: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Return what a token finds, and the state behind it; of one row, or of several along a first dimension of all."""
    wide, group = matrix.dtype, v.shape[-2] // k.shape[-2]
    key, query = (one.to(wide).repeat_interleave(group, dim=-2) for one in (k, q))
    kept = decay.to(wide).exp()
    matrix = matrix * (kept[..., None, None] if decay.ndim < v.ndim else kept[..., None])
    value = v.to(wide)
    if beta is not None:
        value = (value - torch.einsum("...hk,...hkv->...hv", key, matrix)) * beta.to(wide)[..., None]
    matrix = matrix + key[..., :, None] * value[..., None, :]
    return (torch.einsum("...hk,...hkv->...hv", query, matrix) * scale).to(v.dtype), matrix


def selective_scan(x: Tensor, step: Tensor, a: Tensor, b: Tensor, c: Tensor, state: State) -> Tensor:
    """Run a state space of a diagonal for each channel: `x (T, channels)` -> `(T, channels)`.

    For each token `h = exp(step * a) * h + step * x * b` and `out = h @ c`.

    Args:
        step: `(T, channels)` float32, positive.
        a: `(channels, state_dim)` float32, negative.
        b, c: `(T, state_dim)`.
        state: h of each channel, `(channels, state_dim)`.
    """
    wide = state.memory.dtype
    if _at_once(state):
        delta = step.to(wide)[:, :, None]
        h = (delta * a.to(wide)).exp() * _held(state) + delta * x.to(wide)[:, :, None] * b.to(wide)[:, None, :]
        _keep(state, h)
        return torch.einsum("tcn,tn->tc", h, c.to(wide)).to(x.dtype)
    out = torch.empty_like(x)
    for begin, end, slot, h in _rows(state):
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
    wide = state.memory.dtype
    if _at_once(state):
        h = decay.to(wide).exp() * _held(state) + x.to(wide)
        _keep(state, h)
        return h.to(x.dtype)
    out = torch.empty_like(x)
    for begin, end, slot, h in _rows(state):
        for t in range(begin, end):
            h = decay[t].to(wide).exp() * h + x[t].to(wide)
            out[t] = h.to(x.dtype)
        state.memory[slot] = h
    return out


def _at_once(state: State) -> bool:
    """Whether each row has one token, and slots are on a device whose memory the host does not read."""
    starts = state.rows.starts
    return state.rows.twins is not None and bool((starts[1:] - starts[:-1] == 1).all())


def _held(state: State) -> Tensor:
    """Return the states of all rows, zeros of those that are fresh."""
    held = state.memory.index_select(0, state.rows.slots)
    return held.masked_fill((state.rows.fresh != 0).view(-1, *(1 for _ in held.shape[1:])), 0)


def _keep(state: State, found: Tensor) -> None:
    """Leave the states of all rows."""
    state.memory.index_copy_(0, state.rows.slots, found.to(state.memory.dtype))


def _rows(state: State) -> Iterator[tuple[int, int, int, Tensor]]:
    """Yield of each row where its tokens begin and end, its slot, and its state before them."""
    starts = state.rows.starts.tolist()
    for begin, end, slot, fresh in zip(starts, starts[1:], state.rows.slots.tolist(), state.rows.fresh.tolist()):
        if end > begin:
            held = state.memory[slot]
            yield begin, end, slot, torch.zeros_like(held) if fresh else held.clone()
