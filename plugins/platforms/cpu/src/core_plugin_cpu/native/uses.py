"""Pointers into memory: what was made while calls were recorded, and the calls that use it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from core_plugin_cpu.native.entry import Entry

Call = tuple[Entry, bytes]
"""An entry and its packed arguments."""


@dataclass(eq=False, slots=True)
class TorchCall:
    """A torch operation that a program makes between its native calls.

    Attributes:
        func: The operator overload.
        leaves: Its arguments, positional then by name, without the containers that they are in.
        spec: Those containers.
        results: The tensors that it returns, in memory of their own; none of one that changes its arguments.
    """

    func: Any
    leaves: list[Any]
    spec: Any
    results: list[Tensor]

    @property
    def name(self) -> str:
        """As in `aten.rsqrt`."""
        return str(self.func._schema.name).replace("::", ".")

    def given(self) -> list[Tensor]:
        """Return the tensors among its arguments."""
        return [one for one in self.leaves if isinstance(one, Tensor)]


Item = Call | TorchCall
"""A native call or a torch operation, done in its turn."""


def natives(items: Iterable[Item]) -> list[Call]:
    """Return the native calls among the items."""
    return [one for one in items if not isinstance(one, TorchCall)]


def begin(tensor: Tensor) -> int:
    """Return where a tensor's memory begins."""
    return tensor.untyped_storage().data_ptr()


@dataclass(slots=True)
class Home:
    """Memory of one tensor.

    Attributes:
        uses: `(item, word of its arguments)` of every pointer into it, call by call.
        torch: Items that are torch operations and read or write it.
        returned: Whether a torch operation returned it.
    """

    begin: int
    size: int
    uses: list[tuple[int, int]] = field(default_factory=list)
    torch: list[int] = field(default_factory=list)
    returned: bool = False

    def calls(self) -> set[int]:
        """Return which items use it."""
        return {call for call, _ in self.uses} | set(self.torch)

    @property
    def lasting(self) -> bool:
        """Whether it needs a place: what only torch operations hand on is theirs."""
        return bool(self.uses) or (bool(self.torch) and not self.returned)


def sizes_of(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Return where the memory of tensors begins, and its bytes."""
    return {begin(one): one.untyped_storage().nbytes() for one in tensors}


class Homes:
    """The memory of several tensors, found by address.

    Args:
        sizes: As of `sizes_of`.
    """

    def __init__(self, items: Iterable[Item], sizes: Mapping[int, int]) -> None:
        self.all = [Home(begin, size) for begin, size in sorted(sizes.items())]
        self._begins = [home.begin for home in self.all]
        for index, item in enumerate(items):
            for home, word in self._touched(item):
                home.uses.append((index, word)) if word >= 0 else home.torch.append(index)

    def at(self, address: int) -> Home | None:
        """Return whose memory that is; None if nobody's of these."""
        place = bisect_right(self._begins, address) - 1
        if place < 0 or address >= self.all[place].begin + self.all[place].size:
            return None
        return self.all[place]

    def _touched(self, item: Item) -> Iterator[tuple[Home, int]]:
        """Yield memory that an item uses, with the word that points there; -1 for a torch operation."""
        if isinstance(item, TorchCall):
            for one in (*item.given(), *item.results):
                home = self.at(begin(one))
                if home is not None:
                    home.returned |= any(one is result for result in item.results)
                    yield home, -1
            return
        entry, packed = item
        words = np.frombuffer(packed, dtype=np.int64)
        for name in entry.pointers:
            home = self.at(int(words[entry.fields[name]]))
            if home is not None:
                yield home, entry.fields[name]
