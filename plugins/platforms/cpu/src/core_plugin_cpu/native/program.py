"""Programs: the native calls of a forward pass, recorded once and replayed with one foreign call.

A program owns the tensors that its calls read and write. What differs from step to step goes through *slots*: `tokens`
and `rows` (sizes), and pointers to the step's inputs (`token_ids`, `positions`, `slots`, `query_starts`, `seq_lens`,
`table`, with `table_stride`). Each struct field that takes one says so in its `Entry`; to change a slot writes one word
per call that has it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from core_plugin_cpu.native.entry import Entry, recorder

RUN = Entry("run", pointers="ops", sizes="count threads")

_ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


class NotReplayableError(Exception):
    """Something other than native calls took part in what was recorded."""


class Program:
    """Recorded calls.

    Args:
        calls: Entry and argument struct of each call.
        keep: Whatever the calls' pointers point into.
    """

    def __init__(self, calls: list[tuple[Entry, bytes]], keep: list[Any]) -> None:
        self.keep = keep
        self.count = len(calls)
        self._words = np.frombuffer(b"".join(packed for _, packed in calls), dtype=np.int64).copy()
        places, starts = defaultdict(list), []
        start, self._threads = 0, 1
        for entry, packed in calls:
            starts.append(start)
            if "threads" in entry.fields:
                self._threads = max(self._threads, int(self._words[start + entry.fields["threads"]]))
            for name, slot in entry.slots.items():
                if self._is_used(entry, name, start):
                    places[slot].append(start + entry.fields[name])
            start += len(packed) // self._words.itemsize
        self.slots: Mapping[str, np.ndarray] = {slot: np.array(found) for slot, found in places.items()}
        addresses = [entry.address for entry, _ in calls]
        base = self._words.ctypes.data
        self._ops = np.array(
            [word for address, start in zip(addresses, starts) for word in (address, base + 8 * start)], dtype=np.uint64
        )

    def set(self, slot: str, value: int) -> None:
        """Change a slot in every call that has it."""
        places = self.slots.get(slot)
        if places is not None:
            self._words[places] = value

    def run(self) -> None:
        """Make the calls in order."""
        RUN(self._ops.ctypes.data, self.count, self._threads)

    def _is_used(self, entry: Entry, name: str, start: int) -> bool:
        """Whether the call has this slot: a null pointer means "without", and stays."""
        return bool(self._words[start + entry.fields[name]]) or name not in entry.pointers


@dataclass
class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects native calls and the tensors made between them; refuses other work on tensors."""

    calls: list[tuple[Entry, bytes]] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing compiles here; to be skipped by the compiler, torch would import it first, which takes over a second.
        return False

    def add(self, entry: Entry, packed: bytes) -> None:
        self.calls.append((entry, packed))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in _ALLOCATIONS:
            self.keep.append(result)
        elif not (func.is_view and _share_memory(result, args)):
            raise NotReplayableError(f"{func} is no native call")
        return result


def _share_memory(result: Any, args: Any) -> bool:
    """Whether every result lies in an argument's memory: some "views" copy when they must."""
    homes = {arg.untyped_storage().data_ptr() for arg in args if isinstance(arg, Tensor)}
    results = result if isinstance(result, (list, tuple)) else (result,)
    return all(one.untyped_storage().data_ptr() in homes for one in results)


@contextmanager
def _recording() -> Iterator[_Recorder]:
    found = _Recorder()
    token = recorder.set(found)
    try:
        with torch.inference_mode(), found:
            yield found
    finally:
        recorder.reset(token)


def record(work: Callable[[], Tensor], *inputs: Any) -> tuple[Program, Tensor]:
    """Run `work` and return its native calls as a program, with the tensor that a replay fills anew.

    Args:
        inputs: What the work reads and nothing else keeps alive.

    Raises:
        NotReplayableError: The work computes with torch too, so that its native calls alone would not repeat it.
    """
    with _recording() as found:
        out = work()
    return Program(found.calls, [*found.keep, *inputs, work]), out
