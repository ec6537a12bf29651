"""Orders in which converters store the rows of projections, and the way back. Torch-free to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Pairs:
    """The order of interleaved rotary embedding.

    The rows of a head are stored as 0, d/2, 1, d/2 + 1, ... so that the two that rotate together are neighbours;
    Hugging Face's models rotate row i with row i + d/2.
    """

    heads: int

    def undone(self, rows: Tensor) -> Tensor:
        """Return the rows `(R, ...)` in Hugging Face's order."""
        return rows.view(self.heads, -1, 2, rows.shape[1]).transpose(1, 2).reshape(rows.shape)


@dataclass(frozen=True, slots=True)
class Turns:
    """All queries, all keys, all values, where Hugging Face has a turn for each head of keys.

    A turn has the heads of queries that share the head of keys, the head of keys, the head of values.
    """

    heads: int
    kv_heads: int

    def undone(self, rows: Tensor) -> Tensor:
        """Return the rows `(R, ...)` in Hugging Face's order."""
        from torch import cat

        size = len(rows) // (self.heads + 2 * self.kv_heads)
        parts = rows.split_with_sizes([self.heads * size, self.kv_heads * size, self.kv_heads * size])
        return cat([part.reshape(self.kv_heads, -1, rows.shape[1]) for part in parts], dim=1).view(rows.shape)
