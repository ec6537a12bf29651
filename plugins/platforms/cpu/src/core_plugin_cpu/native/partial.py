"""Recorded calls that take only some of the step's rows: replayed for other steps, they would take the wrong ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from core_plugin_cpu.native.uses import Home, Homes, Item, TorchCall, begin


class NotReplayableError(Exception):
    """What was recorded cannot be repeated by its native calls alone."""


def refuse_partial(items: Sequence[Item], homes: Homes, size: int, places: Mapping[int, str]) -> None:
    """Refuse calls that read what the step gave, or what was made of it, but not all of its rows from the first on.

    Args:
        homes: Memory that was made while the calls were recorded.
        size: Tokens, and rows, that they were recorded with.
        places: Address -> slot of each input of the step.

    Raises:
        NotReplayableError: With the operation and how many rows it takes.
    """
    derived: set[int] = set()  # where the memory begins that holds what depends on the step
    for item in items:
        if isinstance(item, TorchCall):
            derived.update(map(begin, item.results))  # whatever it reads: nobody else knows
            derived.update(map(begin, item.given()) if not item.results else ())
            continue
        entry, packed = item
        words = np.frombuffer(packed, dtype=np.int64)
        pointers = [int(words[entry.fields[name]]) for name in entry.pointers]
        touched = [(at, home) for at in pointers if (home := homes.at(at)) is not None]
        if not any(at in places for at in pointers) and not any(home.begin in derived for _, home in touched):
            continue
        derived.update(home.begin for _, home in touched)
        counts = {int(words[entry.fields[name]]) for name, slot in entry.slots.items() if slot in ("tokens", "rows")}
        other = sorted(count for count in counts if count % size)
        if other:
            raise NotReplayableError(f"{entry.name} takes {', '.join(map(str, other))} of the step's {size} rows")
        if not all(_at_first_row(at, home, size) for at, home in touched):
            raise NotReplayableError(f"{entry.name} begins behind the step's first row")


def _at_first_row(address: int, home: Home, size: int) -> bool:
    """Whether an address lies in the first of the rows that a memory holds; memory of no rows has one."""
    return (address - home.begin) * size < home.size
