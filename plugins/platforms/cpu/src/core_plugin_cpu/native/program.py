"""Programs: the native calls of a forward pass, recorded once and replayed with one foreign call.

Where an operation has no native call the program is cut: torch makes it, between one foreign call and the next.

A program owns the memory that its calls read and write. Calls that follow each other may have become one
(`native.fusion`), and results that are no longer read make room for others (`native.arena`). What differs from step to
step goes through *slots*: `tokens` and `rows` (sizes), and pointers to the step's inputs (`token_ids`, `positions`,
`slots`, `query_starts`, `seq_lens`, `table`, with `table_stride` and `table_width`). A second cache group has
`slots.1` and `table.1`, and so on. Rows with states have `state_rows`, `state_slots`, `fresh` and `state_starts`
(where their tokens begin); attention may have made several rows of one of theirs. Each struct field that may take one
says so in its `Entry`, and `Inputs` which of them do; to change a slot writes one word per call that has it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from core_plugin_cpu.native.checks import explain
from core_plugin_cpu.native.entry import WORD, Entry
from core_plugin_cpu.native.torchcalls import Operation, Turn
from core_plugin_cpu.native.uses import Call

RUN = Entry("run", pointers="ops", sizes="count threads", result=True)
RUN_TIMED = Entry("run_timed", pointers="ops times", sizes="count threads", result=True)

_TIMED_RUNS = 3
"""Runs whose torch operations are timed: those of an engine's warm-up."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs that a program is recorded with: tells apart what the step gives from what the calls make of it.

    Attributes:
        size: Tokens, and rows: a size that is no multiple does not depend on the step.
        places: Address -> slot of each input. A pointer to anything else stays, whatever its field may take.
    """

    size: int
    places: Mapping[int, str]

    def slot(self, entry: Entry, name: str, word: int) -> str | None:
        """Return the slot of a field that holds `word`, or None."""
        if name in entry.pointers:
            return self.places.get(word)
        slot = entry.slots[name]
        return slot if (word and word % self.size == 0) or slot not in ("tokens", "rows") else None

    def factor(self, slot: str, word: int) -> int:
        """Return how many times what the slot is given a field holds: rows may be several to a token."""
        return word // self.size if slot in ("tokens", "rows") else 1


class Program:
    """Recorded calls.

    Args:
        calls: Entry and argument struct of each call.
        keep: Whatever the calls' pointers point into.
        inputs: What they were recorded with; None takes every field that may be a slot for one.
        cuts: Torch operations, each with the number of calls that are made before it, in order.

    Attributes:
        count: How many calls.
        operations: The torch operations.
        entries: What they call.
        threads: The most threads that one of them uses; all wait inside the program for what there is to share.
        slots: Slot -> the words of the arguments that hold it.
    """

    def __init__(
        self,
        calls: list[Call],
        keep: list[Any],
        inputs: Inputs | None = None,
        cuts: Sequence[tuple[int, Operation]] = (),
    ) -> None:
        self.keep = keep
        self._inputs = inputs
        self.count = len(calls)
        self.entries = tuple(entry for entry, _ in calls)
        self._words = np.frombuffer(b"".join(packed for _, packed in calls), dtype=np.int64).copy()
        self._starts = starts = list(accumulate((len(packed) // WORD for _, packed in calls), initial=0))[:-1]
        self.threads = max((self._threads_of(entry, start) for (entry, _), start in zip(calls, starts)), default=1)
        self.slots = self._find_slots(calls, starts)
        self._given = np.zeros(len(self.slots), dtype=np.int64)
        self._places = np.concatenate([*self.slots.values(), np.zeros(0, dtype=np.int64)])
        self._sources = np.repeat(np.arange(len(self.slots)), [len(places) for places in self.slots.values()])
        self._values = np.zeros(len(self._places), dtype=np.int64)
        self._factors = self._find_factors()
        base = self._words.ctypes.data
        self._ops = np.array(
            [word for (entry, _), start in zip(calls, starts) for word in (entry.address, base + WORD * start)],
            dtype=np.uint64,
        )
        self.operations = tuple(operation for _, operation in cuts)
        self._segments = list(_segments(self.count, cuts)) if cuts else []
        self._timed = _TIMED_RUNS

    def set(self, values: Mapping[str, int]) -> None:
        """Change all slots in every call that has them; `values` may name more than there are."""
        for index, slot in enumerate(self.slots):
            self._given[index] = values[slot]
        # Into memory that is there already: a step allocates nothing.
        self._given.take(self._sources, out=self._values, mode="clip")
        if self._factors is not None:
            self._values *= self._factors
        self._words[self._places] = self._values

    def run(self, given: Turn | None = None) -> int:
        """Make the calls in order. Returns how often threads were handed work: what a step pays for being shared.

        Args:
            given: What the torch operations of a program with cuts take from the step.

        Raises:
            IndexError: The step's inputs name places that are not there; nothing was read or written by them.
        """
        if not self._segments:
            return self._make(0, self.count)
        if given is None:
            raise ValueError("a program with torch operations needs what the step gives")
        self._timed -= self._timed > 0
        return sum(self._segment(begin, end, operations, given) for begin, end, operations in self._segments)

    def describe(self) -> str:
        """Return how many calls it makes, and where it is cut."""
        calls = f"{self.count} calls"
        if not self._segments:
            return calls
        counts = Counter(one.name for one in self.operations)
        names = ", ".join(f"{name} x{count}" for name, count in counts.most_common())
        spent = sum(one.nanoseconds for one in self.operations) / 1e3
        pieces = sum(end > begin for begin, end, _ in self._segments)
        return f"{calls} in {pieces} segments; torch: {names} ({spent:.0f} us)"

    def _segment(self, begin: int, end: int, operations: Sequence[Operation], given: Turn) -> int:
        shared = self._make(begin, end) if end > begin else 0
        for operation in operations:
            operation.time(given) if self._timed else operation.run(given)
        return shared

    def _make(self, begin: int, end: int) -> int:
        shared = RUN(self._ops.ctypes.data + 2 * WORD * begin, end - begin, self.threads) or 0
        if shared < 0:
            raise self._refused(begin - 1 - shared)
        return shared

    def time(self) -> np.ndarray:
        """Make the calls in order; return the nanoseconds of each, `(count,)` int64. Raises as `run` does."""
        times = np.zeros(self.count, dtype=np.int64)
        shared = RUN_TIMED(self._ops.ctypes.data, times.ctypes.data, self.count, self.threads) or 0
        if shared < 0:
            raise self._refused(-1 - shared)
        return times

    def argument(self, call: int, field: str) -> int:
        """Return what a call has in one of its entry's fields."""
        return int(self._words[self._starts[call] + self.entries[call].fields[field]])

    def _refused(self, call: int) -> IndexError:
        """Return the error of a step whose inputs a check refused."""
        entry = self.entries[call]
        return IndexError(explain(entry, {field: self.argument(call, field) for field in entry.fields}))

    def _find_slots(self, calls: list[Call], starts: list[int]) -> Mapping[str, np.ndarray]:
        places = defaultdict(list)
        for (entry, _), start in zip(calls, starts):
            for name, slot in entry.slots.items():
                word = int(self._words[start + entry.fields[name]])
                found: str | None = slot
                if name in entry.pointers and not word:
                    found = None  # a null pointer means "without", and stays
                elif self._inputs is not None:
                    found = self._inputs.slot(entry, name, word)
                if found is not None:
                    places[found].append(start + entry.fields[name])
        return {slot: np.array(found) for slot, found in places.items()}

    def _find_factors(self) -> np.ndarray | None:
        """Return how many times what it is given each place holds; None where all hold it once."""
        if self._inputs is None:
            return None
        found = [
            self._inputs.factor(slot, int(self._words[place]))
            for slot, places in self.slots.items()
            for place in places
        ]
        factors = np.array(found, dtype=np.int64)
        return None if (factors == 1).all() else factors

    def _threads_of(self, entry: Entry, start: int) -> int:
        return int(self._words[start + entry.fields["threads"]]) if "threads" in entry.fields else 1


def _segments(count: int, cuts: Sequence[tuple[int, Operation]]) -> Iterator[tuple[int, int, tuple[Operation, ...]]]:
    """Yield `(first call, behind the last one, torch operations behind them)`."""
    behind: dict[int, list[Operation]] = defaultdict(list)
    for before, operation in cuts:
        behind[before].append(operation)
    begin = 0
    for end in sorted({*behind, count}):
        yield begin, end, tuple(behind.get(end, ()))
        begin = end
