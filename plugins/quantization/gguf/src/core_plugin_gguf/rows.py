"""Orders in which converters store the rows of projections, and the way back. Torch-free to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Order(Protocol):
    """An order of rows."""

    def fits(self, count: int) -> bool:
        """Say whether there can be so many rows."""
        ...

    def undone(self, rows: Tensor) -> Tensor:
        """Return the rows `(R, ...)` in Hugging Face's order, or in that of its modules."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of a module are stored.

    Attributes:
        order: Their order; None: Hugging Face's.
        parts: Hugging Face's modules that they are one after another, and the rows of each; empty: one module.
        columns: Whether the order is that of the columns.
    """

    order: Order | None = None
    parts: tuple[tuple[str, int], ...] = ()
    columns: bool = False


@dataclass(frozen=True, slots=True)
class Pairs:
    """The order of interleaved rotary embedding.

    The rows of a head are stored as 0, d/2, 1, d/2 + 1, ... so that the two that rotate together are neighbours;
    Hugging Face's models rotate row i with row i + d/2.
    """

    heads: int

    def fits(self, count: int) -> bool:
        """Say whether there can be so many rows."""
        return self.heads > 0 and count % (2 * self.heads) == 0

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

    def fits(self, count: int) -> bool:
        """Say whether there can be so many rows."""
        return self.kv_heads > 0 and count % (self.heads + 2 * self.kv_heads) == 0 == self.heads % self.kv_heads

    def undone(self, rows: Tensor) -> Tensor:
        """Return the rows `(R, ...)` in Hugging Face's order."""
        from torch import cat

        size = len(rows) // (self.heads + 2 * self.kv_heads)
        parts = rows.split_with_sizes([self.heads * size, self.kv_heads * size, self.kv_heads * size])
        return cat([part.reshape(self.kv_heads, -1, rows.shape[1]) for part in parts], dim=1).view(rows.shape)


@dataclass(frozen=True, slots=True)
class Together:
    """All parts of a group, then those of the next one; in order, the first part of all groups comes first.

    Attributes:
        groups: Number of groups.
        sizes: Rows of each part in a group.
    """

    groups: int
    sizes: tuple[int, ...]

    def fits(self, count: int) -> bool:
        """Say whether there can be so many rows."""
        return count == self.groups * sum(self.sizes)

    def undone(self, rows: Tensor) -> Tensor:
        """Return the rows `(R, ...)` of one part after another."""
        from torch import cat

        parts = rows.view(self.groups, sum(self.sizes), -1).split_with_sizes(list(self.sizes), dim=1)
        return cat([part.reshape(-1, rows.shape[1]) for part in parts])


@dataclass(frozen=True, slots=True)
class Dealt:
    """Heads dealt out: the first of every group, then the second of every group, and so on.

    Attributes:
        groups: Number of groups; Hugging Face has the heads of a group together.
        size: Rows of a head.
        first: Rows in front that have Hugging Face's order.
    """

    groups: int
    size: int
    first: int = 0

    def fits(self, count: int) -> bool:
        """Say whether there can be so many rows."""
        return count >= self.first and (count - self.first) % (self.groups * self.size) == 0

    def undone(self, rows: Tensor) -> Tensor:
        """Return the rows `(R, ...)` in Hugging Face's order."""
        from torch import cat

        heads = rows[self.first :].view(-1, self.groups, self.size, rows.shape[1]).transpose(0, 1)
        return cat([rows[: self.first], heads.reshape(-1, rows.shape[1])])
