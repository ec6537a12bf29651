"""Attention to the last tokens of a request, which its state holds, and what puts parts of a softmax together.

Shapes: T tokens of a step; H heads of size D. One key, which is the value too, serves all heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from core.api import State
from core_plugin_deepseek.fourth.states import before, keep, pushed, several, single

TILE = 256
"""Queries of a prompt that are scored together."""

Part = tuple[Tensor, Tensor]
"""Means by a softmax, `(T, H, D)`, and the logarithms of the sums of `exp(score)`, `(T, H)`; both float32."""


def window_attention(q: Tensor, keys: Tensor, positions: Tensor, state: State, scale: float) -> Part:
    """Attend to a token itself and those before it, as many as the state has lines.

    Args:
        q: `(T, H, D)`.
        keys: `(T, D)`, those of the step's tokens.
        positions: `(T,)` int64.
        state: `(lines, D)`, a ring.
    """
    out = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    sums = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    if (rows := single(state)) is not None:
        of, lines = rows.tokens, state.memory.shape[1]
        now = positions[of][:, None]
        ring = pushed(state, rows, keys[of], positions[of])
        held = now - (now - torch.arange(lines, device=q.device)) % lines  # the position in each line
        found, total = _attend(q[of][:, None], ring.masked_fill((held < 0)[..., None], 0), (held < 0)[:, None], scale)
        out[of], sums[of] = found[:, 0], total[:, 0]
    for row in several(state):
        of, first = slice(row.begin, row.end), int(positions[row.begin])
        line = torch.cat((before(state, row, first).to(keys.dtype), keys[of]))
        out[of], sums[of] = _along(q[of], line, first, state.memory.shape[1], scale)
        keep(state, row, first, keys[of])
    return out, sums


def joined(parts: Sequence[Part], sinks: Tensor) -> Tensor:
    """Return what one softmax over all parts, and a sink for each head, gives: `(T, H, D)` float32.

    Args:
        sinks: `(H,)` float32, scores of a key without a value.
    """
    shares = [sums for _, sums in parts]
    total = torch.stack([*shares, sinks.expand_as(shares[0])]).logsumexp(0)
    weighed = [found * (sums - total).exp()[..., None] for found, sums in parts]
    return torch.stack(weighed).sum(0) if len(weighed) > 1 else weighed[0]


def _along(q: Tensor, line: Tensor, first: int, window: int, scale: float) -> Part:
    """Attend with a prompt's tokens, from position `first` on; `line` has `window - 1` tokens more, before them."""
    parts = []
    for begin in range(0, len(q), TILE):
        queries = q[begin : begin + TILE]
        keys = line[begin : begin + len(queries) + window - 1]
        at = torch.arange(len(queries), device=q.device)[:, None] + window - 1  # of each query among the keys
        place = torch.arange(len(keys), device=q.device)
        hidden = (place > at) | (place <= at - window) | (place < window - 1 - first - begin)
        parts.append(_attend(queries[None], keys[None], hidden[None], scale))
    return torch.cat([found[0] for found, _ in parts]), torch.cat([sums[0] for _, sums in parts])


def _attend(q: Tensor, keys: Tensor, hidden: Tensor, scale: float) -> Part:
    """Return the part of rows: `q (rows, queries, H, D)`, `keys (rows, n, D)`, `hidden (rows, queries, n)`."""
    wide = keys.float()
    scores = (q.float().flatten(1, 2) @ wide.transpose(1, 2)).view(*q.shape[:3], -1) * scale
    scores = scores.masked_fill(hidden[:, :, None], -torch.inf)
    sums = scores.logsumexp(-1)
    shares = (scores - sums[..., None]).exp()
    return (shares.flatten(1, 2) @ wide).view(q.shape), sums
