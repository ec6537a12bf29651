"""Linear attention of a row in plain torch, a chunk of tokens at a time.

Let D[t, s] be what is kept of token s behind token t, and S the state before a chunk. Of the chunk's tokens

    U = (1 + A)^-1 (beta * (v - k D S))     with A[t, s] = beta[t] k[t] D[t, s] . k[s] for s < t,
    out = scale * (q D S + P U)             with P[t, s] = q[t] D[t, s] . k[s] for s <= t,

and the state behind it is D S + (D k)^T U. Without the delta rule U is v. Exponents are sums of decays between two
tokens, never differences, so that none is positive. H heads, C tokens of a chunk, K and V sizes of keys and values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.linalg import solve_triangular

if TYPE_CHECKING:
    from torch import Tensor

FEWEST = 8
"""Tokens of a row from which on chunks take less time."""
CHUNK, CHUNK_BY_KEY = 64, 8
"""Tokens of a chunk: where a head decays as a whole, and where D has a number for each dimension of the keys."""


def by_chunk(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor | None, matrix: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Return what the tokens of a row find, `(tokens, H, V)`, and its state behind them.

    Args:
        q, k, v, decay, beta, scale: As those of `linear_attention`, of the row's tokens.
        matrix: The state before them, `(H, K, V)`.
    """
    wide, group = matrix.dtype, v.shape[1] // k.shape[1]
    size = CHUNK if decay.ndim == 2 else CHUNK_BY_KEY
    pieces = []
    for begin in range(0, len(v), size):
        of = slice(begin, begin + size)
        query, key = (one[of].to(wide).repeat_interleave(group, dim=1).transpose(0, 1) for one in (q, k))
        lost = decay[of].to(wide).transpose(0, 1)
        lost = lost.unsqueeze(-1) if decay.ndim == 2 else lost
        factor = None if beta is None else beta[of].to(wide).T.unsqueeze(-1)
        out, matrix = _chunk(query * scale, key, v[of].to(wide).transpose(0, 1), lost, factor, matrix)
        pieces.append(out.transpose(0, 1).to(v.dtype))
    return torch.cat(pieces), matrix


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
