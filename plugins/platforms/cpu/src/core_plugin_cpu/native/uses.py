"""Who points where: memory that was made while calls were recorded, and the calls that use it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from core_plugin_cpu.native.entry import Entry

Call = tuple[Entry, bytes]
"""An entry and its packed arguments."""


@dataclass(slots=True)
class Home:
    """Memory of one tensor.

    Attributes:
        uses: `(call, word of its arguments)` of every pointer into it, call by call.
    """

    begin: int
    size: int
    uses: list[tuple[int, int]] = field(default_factory=list)

    def calls(self) -> set[int]:
        """Return which calls use it."""
        return {call for call, _ in self.uses}


class Homes:
    """The memory of several tensors, found by address."""

    def __init__(self, calls: Iterable[Call], private: Iterable[Tensor]) -> None:
        places = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in private}
        self.all = [Home(begin, size) for begin, size in sorted(places.items())]
        self._begins = [home.begin for home in self.all]
        for index, (entry, packed) in enumerate(calls):
            words = np.frombuffer(packed, dtype=np.int64)
            for name in entry.pointers:
                home = self.at(int(words[entry.fields[name]]))
                if home is not None:
                    home.uses.append((index, entry.fields[name]))

    def at(self, address: int) -> Home | None:
        """Return whose memory that is; None if nobody's of these."""
        place = bisect_right(self._begins, address) - 1
        if place < 0 or address >= self.all[place].begin + self.all[place].size:
            return None
        return self.all[place]
