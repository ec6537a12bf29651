"""Footprint of a plugin: children and threads that it may leave behind in this process."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import psutil

from core_testing.conformance.outcome import require


@dataclass(frozen=True, slots=True)
class Footprint:
    """Ids of this process's children and threads at some moment."""

    children: frozenset[int]
    threads: frozenset[int]

    @classmethod
    def now(cls) -> Footprint:
        """Return those of now."""
        children = {child.pid for child in psutil.Process().children(recursive=True)}
        return cls(frozenset(children), frozenset(thread.ident or 0 for thread in threading.enumerate()))

    def require_nothing_more(self, patience: float) -> None:
        """Require that everything that was not there at this moment ends within `patience` seconds."""
        deadline = time.monotonic() + patience
        while (self._children() or self._threads()) and time.monotonic() < deadline:
            time.sleep(0.02)
        children, names = self._children(), self._threads()
        require(not children, f"{len(children)} processes are left")
        require(not names, f"threads are left: {', '.join(names)}")

    def _children(self) -> frozenset[int]:
        return Footprint.now().children - self.children

    def _threads(self) -> list[str]:
        return [thread.name for thread in threading.enumerate() if (thread.ident or 0) not in self.threads]
