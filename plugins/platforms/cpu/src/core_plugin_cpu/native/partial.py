"""Recorded calls that take only some of the step's rows: replayed for other steps, they would take the wrong ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from core_plugin_cpu.native.entry import Entry
from core_plugin_cpu.native.uses import Home, Homes, Item, TorchCall, begin

_PER_TOKEN = ("token_ids", "positions")


class NotReplayableError(Exception):
    """A recording cannot be repeated by its native calls alone."""


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
        given = dict(_inputs(entry, words, places, size))
        if not given and not any(home.begin in derived for _, home in touched):
            continue
        for name, at in given.items():
            if at not in places or name not in entry.slots:
                why = "begins behind the step's first row" if at not in places else "reads the step and is no slot"
                raise NotReplayableError(f"{name} of {entry.name} {why}")
        derived.update(home.begin for _, home in touched)
        counts = {int(words[entry.fields[name]]) for name, slot in entry.slots.items() if slot in ("tokens", "rows")}
        other = sorted(count for count in counts if count % size)
        if other:
            raise NotReplayableError(f"{entry.name} takes {', '.join(map(str, other))} of the step's {size} rows")
        fixed = [name for name, one in entry.unpack(packed).items() if _follows(entry, name, one, size)]
        if fixed:
            raise NotReplayableError(f"{fixed[0]} of {entry.name} depends on the number of tokens and is no slot")
        if not all(_at_first_row(at, home, size) for at, home in touched):
            raise NotReplayableError(f"{entry.name} begins behind the step's first row")


def _inputs(entry: Entry, words: np.ndarray, places: Mapping[int, str], size: int) -> Iterator[tuple[str, int]]:
    """Yield the fields that point to inputs of the step, of which those with a number for each token have a length."""
    for name in entry.pointers:
        at = int(words[entry.fields[name]])
        if any(place <= at < place + (8 * size if kind in _PER_TOKEN else 1) for place, kind in places.items()):
            yield name, at


def _follows(entry: Entry, name: str, number: float, size: int) -> bool:
    """Whether a field that no step changes holds a number of tokens; `size` is prime, so that is no coincidence."""
    fixed = name not in entry.slots and name not in entry.pointers and isinstance(number, int)
    return fixed and number != 0 and number % size == 0


def _at_first_row(address: int, home: Home, size: int) -> bool:
    """Whether an address lies in the first of the rows that a memory holds; memory of no rows has one."""
    return (address - home.begin) * size < home.size
