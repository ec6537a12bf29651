"""Where the parts of a weight lie, and which neighbours one native call computes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING

from core_plugin_cpu.native.packed import PANEL, Format, packed_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from core_plugin_cpu.products.packings import Packing


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring outputs that one native call computes.

    Attributes:
        first, rows: The outputs.
        start, size: Their bytes.
        order: Row of the parameter `order` with the order of their inputs; None: as they come.
    """

    kind: Format
    first: int
    rows: int
    start: int
    size: int
    order: int | None


class Layout:
    """Parts of a weight, packed one after another into a row of bytes.

    Args:
        packings, rows: Of each part, in order.
        inputs: Columns of the weight.

    Attributes:
        firsts: Output that each part begins with; last, how many there are.
        starts: Byte that each part begins with; last, how many there are.
    """

    def __init__(self, packings: Sequence[Packing], rows: Sequence[int], inputs: int) -> None:
        self._packings, self._rows = packings, rows
        sizes = [packed_bytes(one.kind, count, inputs) for one, count in zip(packings, rows, strict=True)]
        self.firsts, self.starts = [0, *accumulate(rows)], [0, *accumulate(sizes)]

    @property
    def outputs(self) -> int:
        """Outputs of all parts."""
        return self.firsts[-1]

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return self.starts[-1]

    def order_of(self, part: int) -> int:
        """Return how many parts before this one rearrange their inputs."""
        return sum(one.ordered for one in self._packings[:part])

    def runs(self, *, joined: bool) -> Iterator[Run]:
        """Yield a run for each part, or as few as there can be: neighbours of one format and whole panels."""
        alike = [
            joined and (one.kind, one.ordered) == (other.kind, other.ordered) and rows % PANEL == 0
            for (one, other), rows in zip(pairwise(self._packings), self._rows)
        ]
        numbers = accumulate((not same for same in alike), initial=0)
        for _, members in groupby(enumerate(numbers), key=lambda pair: pair[1]):
            parts = [part for part, _ in members]
            a, b = parts[0], parts[-1] + 1
            order = self.order_of(a) if self._packings[a].ordered else None
            first, start = self.firsts[a], self.starts[a]
            yield Run(self._packings[a].kind, first, self.firsts[b] - first, start, self.starts[b] - start, order)
