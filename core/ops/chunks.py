"""Linear attention in plain torch, long rows a chunk of tokens at a time: the values of `core.ops.recurrent`, sooner.

Let D[t, s] be what is kept of token s behind token t, and S the state before a chunk. Of the chunk's tokens

    U = (1 + A)^-1 (beta * (v - k D S))     with A[t, s] = beta[t] k[t] D[t, s] . k[s] for s < t,
    out = scale * (q D S + P U)             with P[t, s] = q[t] D[t, s] . k[s] for s <= t,

and the state behind it is D S + (D k)^T U. Without the delta rule U is v. Exponents are sums of decays between two
tokens, never differences, so that none is positive. H heads, C tokens of a chunk, K and V sizes of keys and values.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.linalg import solve_triangular

from core.api.states import State, StateRows
from core.ops import recurrent

if TYPE_CHECKING:
    from torch import Tensor

FEWEST = 8
"""Tokens of a row from which on chunks take less time."""
CHUNK, CHUNK_BY_KEY = 64, 16
"""Tokens of a chunk: where a head decays as a whole, and where D has a number for each dimension of the keys."""


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor | None, state: State, scale: float
) -> Tensor:
    """Attend as `recurrent.linear_attention` does, with the same arguments."""
    starts = state.rows.starts.tolist()
    lengths = [end - begin for begin, end in pairwise(starts)]
    if max(lengths, default=0) < FEWEST:
        return recurrent.linear_attention(q, k, v, decay, beta, state, scale)
    out = torch.empty_like(v)
    for row, (begin, length) in enumerate(zip(starts, lengths)):
        if length:
            of, form = slice(begin, begin + length), _row if length >= FEWEST else recurrent.linear_attention
            factor = None if beta is None else beta[of]
            out[of] = form(q[of], k[of], v[of], decay[of], factor, _only(state, row, length), scale)
    return out


def _only(state: State, row: int, length: int) -> State:
    """Return the state of one row, whose tokens are alone."""
    rows, of = state.rows, slice(row, row + 1)
    return State(state.memory, StateRows(rows.slots[of], rows.fresh[of], np.array([0, length], np.int32)))


def _row(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor | None, state: State, scale: float) -> Tensor:
    """Attend within the only row of `state`."""
    ((_, _, slot, matrix),) = recurrent.rows_of(state)
    wide, group = matrix.dtype, v.shape[1] // k.shape[1]
    size = CHUNK if decay.ndim == 2 else CHUNK_BY_KEY
    pieces = []
    for begin in range(0, len(v), size):
        of = slice(begin, begin + size)
        query, key = (one[of].to(wide).repeat_interleave(group, dim=1).transpose(0, 1) for one in (q, k))
        lost = decay[of].to(wide).transpose(0, 1)  # (H, C) or (H, C, K)
        lost = lost.unsqueeze(-1) if decay.ndim == 2 else lost
        factor = None if beta is None else beta[of].to(wide).T.unsqueeze(-1)
        out, matrix = _chunk(query * scale, key, v[of].to(wide).transpose(0, 1), lost, factor, matrix)
        pieces.append(out.transpose(0, 1).to(v.dtype))
    state.memory[slot] = matrix
    return torch.cat(pieces)


def _chunk(q: Tensor, k: Tensor, v: Tensor, lost: Tensor, beta: Tensor | None, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return what a chunk gives, `(H, C, V)`, and the state behind it.

    Args:
        q, k: `(H, C, K)`.
        v: `(H, C, V)`.
        lost: Logarithm of what each token keeps, `(H, C, 1 or K)`.
        beta: `(H, C, 1)`, or None.
        matrix: The state before, `(H, K, V)`.
    """
    kept, since = _kept(lost), lost.cumsum(1).exp()
    if beta is not None:
        among = beta * _products(k, k, kept).tril(-1)
        v = solve_triangular(among, beta * (v - (k * since) @ matrix), upper=False, unitriangular=True)
    out = (q * since) @ matrix + _products(q, k, kept) @ v
    return out, since[:, -1].unsqueeze(-1) * matrix + (k * kept[:, -1]).transpose(1, 2) @ v


def _kept(lost: Tensor) -> Tensor:
    """Return D of `lost (H, C, N)`, `(H, C, C, N)`: 0 where s > t."""
    count = lost.shape[1]
    seen = torch.ones(count, count, dtype=torch.bool, device=lost.device).tril().unsqueeze(-1)
    after = seen & ~torch.eye(count, dtype=torch.bool, device=lost.device).unsqueeze(-1)
    sums = torch.where(after, lost.unsqueeze(2), 0.0).cumsum(1)
    return torch.where(seen, sums, -torch.inf).exp()


def _products(one: Tensor, k: Tensor, kept: Tensor) -> Tensor:
    """Return `one[t] D[t, s] . k[s]`, `(H, C, C)`."""
    if kept.shape[-1] == 1:
        return one @ k.transpose(1, 2) * kept.squeeze(-1)
    return (one.unsqueeze(2) * kept * k.unsqueeze(1)).sum(-1)
