"""Queue of grammars to compile. A flood of hard grammars delays itself, and not the easy ones of others."""

from __future__ import annotations

import heapq
import threading
from itertools import count
from typing import Generic, TypeVar

from core_plugin_structured.compiling.effort import EASY

T = TypeVar("T")

_EFFORT_PER_SECOND = 4096
_MOST_SECONDS = 30.0


class Line(Generic[T]):
    """Items in the order in which they are taken: the easier first, but nobody is overtaken for ever.

    An item lets those pass that come within as many seconds as its effort is worth, at most half a minute's.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, T]] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, item: T, effort: int, now: float) -> None:
        """Add an item at a time, in seconds."""
        turn = now + min(effort / _EFFORT_PER_SECOND, _MOST_SECONDS)
        with self._changed:
            heapq.heappush(self._heap, (turn, next(self._numbers), effort, item))
            self._changed.notify_all()

    def take(self, *, easy: bool = False) -> T | None:
        """Wait for the next item and return it; None once the line is closed.

        Args:
            easy: Take easy ones only.
        """
        with self._changed:
            while not self._closed:
                if easy:
                    found = min((entry for entry in self._heap if entry[2] <= EASY), default=None)
                else:
                    found = self._heap[0] if self._heap else None
                if found is not None:
                    self._heap.remove(found)
                    heapq.heapify(self._heap)
                    return found[3]
                self._changed.wait()
        return None

    def drop(self, item: T) -> bool:
        """Take an item out of the line; False if it is not in it any more."""
        with self._changed:
            left = [entry for entry in self._heap if entry[3] is not item]
            found = len(left) < len(self._heap)
            heapq.heapify(left)
            self._heap = left
        return found

    def close(self) -> None:
        """Let everybody who waits go; what is left is taken by nobody."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
