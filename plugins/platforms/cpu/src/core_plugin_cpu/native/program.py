"""Programs: the native calls of a forward pass, recorded once and replayed with one foreign call.

A program owns the memory that its calls read and write. Calls that follow each other may have become one
(`native.fusion`), and results that are no longer read make room for others (`native.arena`). What differs from step to
step goes through *slots*: `tokens` and `rows` (sizes), and pointers to the step's inputs (`token_ids`, `positions`,
`slots`, `query_starts`, `seq_lens`, `table`, with `table_stride` and `table_width`). A second cache group has `slots.1`
and `table.1`, and so on. Each struct field that may take one says so in its `Entry`, and `Inputs` which of them do; to
change a slot writes one word per call that has it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from core_plugin_cpu.native.arena import Need, lay_out, reserve
from core_plugin_cpu.native.checks import CHECKS, explain
from core_plugin_cpu.native.entry import WORD, Entry, recorder
from core_plugin_cpu.native.fusion import fuse
from core_plugin_cpu.native.partial import NotReplayableError, refuse_partial
from core_plugin_cpu.native.rewrite import rewritten
from core_plugin_cpu.native.uses import Call, Homes

RUN = Entry("run", pointers="ops", sizes="count threads", result=True)
RUN_TIMED = Entry("run_timed", pointers="ops times", sizes="count threads", result=True)

_CONSTANTS = frozenset({"new_zeros", "zeros"})
_ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a program is recorded with: tells apart what the step gives from what the calls make of it.

    Attributes:
        size: Tokens, and rows: a size that is another one does not depend on the step.
        places: Address -> slot of each input. A pointer to anything else stays, whatever its field may take.
    """

    size: int
    places: Mapping[int, str]

    def slot(self, entry: Entry, name: str, word: int) -> str | None:
        """Return the slot of a field that holds `word`, or None."""
        if name in entry.pointers:
            return self.places.get(word)
        slot = entry.slots[name]
        return slot if word == self.size or slot not in ("tokens", "rows") else None


class Program:
    """Recorded calls.

    Args:
        calls: Entry and argument struct of each call.
        keep: Whatever the calls' pointers point into.
        inputs: What they were recorded with; None takes every field that may be a slot for one.

    Attributes:
        count: How many calls.
        entries: What they call.
        threads: The most threads that one of them uses; all wait inside the program for what there is to share.
        slots: Slot -> the words of the arguments that hold it.
    """

    def __init__(self, calls: list[Call], keep: list[Any], inputs: Inputs | None = None) -> None:
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
        base = self._words.ctypes.data
        self._ops = np.array(
            [word for (entry, _), start in zip(calls, starts) for word in (entry.address, base + WORD * start)],
            dtype=np.uint64,
        )

    def set(self, values: Mapping[str, int]) -> None:
        """Change all slots in every call that has them; `values` may name more than there are."""
        for index, slot in enumerate(self.slots):
            self._given[index] = values[slot]
        # Into memory that is there already: a step allocates nothing.
        self._given.take(self._sources, out=self._values, mode="clip")
        self._words[self._places] = self._values

    def run(self) -> int:
        """Make the calls in order. Returns how often threads were handed work: what a step pays for being shared.

        Raises:
            IndexError: The step's inputs name places that are not there; nothing was read or written by them.
        """
        shared = RUN(self._ops.ctypes.data, self.count, self.threads) or 0
        if shared < 0:
            raise self._refused(-1 - shared)
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

    def _threads_of(self, entry: Entry, start: int) -> int:
        return int(self._words[start + entry.fields["threads"]]) if "threads" in entry.fields else 1


@dataclass
class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects native calls and the tensors made between them; refuses other work on tensors."""

    calls: list[Call] = field(default_factory=list)
    made: list[Tensor] = field(default_factory=list)
    constants: list[Tensor] = field(default_factory=list)
    running: bool = True
    refusal: NotReplayableError | None = None

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing compiles here; to be skipped by the compiler, torch would import it first, which takes over a second.
        return False

    def add(self, entry: Entry, packed: bytes) -> bool:
        self.calls.append((entry, packed))
        return self.running

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        native = rewritten(func, args, kwargs)
        if native is not None:
            self.made.append(native)
            return native
        name = func.overloadpacket.__name__
        if name in _ALLOCATIONS and not self.running:
            self.made.append(_untouched(func, args, kwargs or {}))
            return self.made[-1]
        result = func(*args, **(kwargs or {}))
        if name in _ALLOCATIONS:
            self.made.append(result)
        elif name in _CONSTANTS:
            self.constants.append(result)
        elif not (func.is_view and _share_memory(result, args)):
            self.refusal = NotReplayableError(f"{func} is no native call")
            raise self.refusal
        return result


def _untouched(func: Any, args: Any, kwargs: Any) -> Tensor:
    """Allocate as `func` would, with memory of its own for every tensor.

    All results of a forward pass live at once while it is recorded, and none is written: that must cost addresses only.
    """
    like = func(*args, **{**kwargs, "device": "meta"})
    return reserve(like.untyped_storage().nbytes()).view(like.dtype).as_strided(like.shape, like.stride())


def _share_memory(result: Any, args: Any) -> bool:
    """Whether every result lies in an argument's memory: some "views" copy when they must."""
    homes = {arg.untyped_storage().data_ptr() for arg in args if isinstance(arg, Tensor)}
    results = result if isinstance(result, (list, tuple)) else (result,)
    return all(one.untyped_storage().data_ptr() in homes for one in results)


@contextmanager
def _recording(running: bool) -> Iterator[_Recorder]:
    found = _Recorder(running=running)
    token = recorder.set(found)
    try:
        with torch.inference_mode(), found:
            yield found
    finally:
        recorder.reset(token)


def record(
    work: Callable[[], Tensor], *inputs: Any, run: bool = True, step: Inputs | None = None
) -> tuple[Program, Tensor]:
    """Return the native calls of `work` as a program, with the tensor that a replay fills anew.

    Args:
        inputs: What the work reads and nothing else keeps alive.
        step: Tells the program's slots; see `Program`.
        run: Whether the calls are made while they are recorded; if not, what they write holds anything until a replay.

    Raises:
        NotReplayableError: The work computes with torch too, so that its native calls alone would not repeat it; or a
            call takes other rows than all of the step's.
    """
    with _recording(run) as found:
        out = _done(work, found)
    once = _checked_once(found.calls)
    if step is not None:
        refuse_partial(once, Homes(once, found.made), step.size, step.places)
    home = out.untyped_storage().data_ptr()
    private = [one for one in found.made if one.untyped_storage().data_ptr() != home]
    calls, memory = _move(fuse(once, Homes(once, private)), private)
    return Program(calls, [memory, *found.constants, *inputs, out, work], step), out


def _done(work: Callable[[], Tensor], found: _Recorder) -> Tensor:
    """Do the work; what cannot be recorded is told as that, whatever the work made of it."""
    try:
        out = work()
    except Exception as error:
        if found.refusal is None:
            raise
        raise found.refusal from error
    if found.refusal is not None:
        raise found.refusal
    return out


def _checked_once(calls: list[Call]) -> list[Call]:
    """Return the calls with the first of several equal checks: nothing of what they look at changes in between."""
    seen: set[Call] = set()
    kept: list[Call] = []
    for call in calls:
        if call[0] not in CHECKS or call not in seen:
            kept.append(call)
            seen.add(call)
    return kept


def _move(calls: list[Call], private: list[Tensor]) -> tuple[list[Call], Tensor]:
    """Return the calls with what they alone use moved into one memory, and that memory."""
    used = [home for home in Homes(calls, private).all if home.uses]
    offsets, total = lay_out(Need(home.size, home.uses[0][0], home.uses[-1][0]) for home in used)
    memory = reserve(total)
    base = memory.data_ptr()
    words = [np.frombuffer(packed, dtype=np.int64).copy() for _, packed in calls]
    for home, offset in zip(used, offsets):
        for call, place in home.uses:
            words[call][place] += base + offset - home.begin
    return [(entry, moved.tobytes()) for (entry, _), moved in zip(calls, words)], memory
