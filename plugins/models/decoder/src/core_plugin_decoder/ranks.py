"""Share of a rank in a mixer that is divided by heads. Torch-free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from core.api import CheckpointError

if TYPE_CHECKING:
    from core.api import LayerBuilder

V = TypeVar("V")


class Share(NamedTuple):
    """Heads and groups of one rank, and how its layers are divided.

    Attributes:
        heads, groups: How many.
        first: Number of its first head among those of all ranks.
        ranks: Among how many the mixer is divided.
    """

    heads: int
    groups: int
    first: int = 0
    ranks: int = 1

    @property
    def out(self) -> Literal["out"] | None:
        """The `shard` of layers that give heads."""
        return "out" if self.ranks > 1 else None

    @property
    def into(self) -> Literal["in"] | None:
        """The `shard` of layers that read heads."""
        return "in" if self.ranks > 1 else None

    def of(self, values: tuple[V, ...]) -> tuple[V, ...]:
        """Return the values of its heads, out of one for each head of the model."""
        return values[self.first : self.first + self.heads]


def share_of(build: LayerBuilder, heads: int, groups: int, *also: int) -> Share:
    """Return what this rank has of a mixer; all of it where ranks cannot divide it, and where there is only one.

    Args:
        groups: What several neighbouring heads read; each is on the ranks of its heads.
        also: Further numbers that ranks have to divide.
    """
    try:
        own = build.heads(heads, groups)
    except CheckpointError:
        return Share(heads, groups)
    ranks = heads // own.heads
    if any(number % ranks for number in also):
        return Share(heads, groups)
    return Share(own.heads, own.kv_heads, own.first, ranks)
