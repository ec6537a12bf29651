"""Work that Ctrl-C ends for certain."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Work(threading.Thread, Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(daemon=True, name="interruptible work")
        self._work = work
        self.value: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value.append(self._work())
        except BaseException as error:
            self.error = error


def interruptible(work: Callable[[], T]) -> T:
    """Return what `work` returns, or raise what it raises; it runs in a thread, which an interrupt leaves behind.

    The interpreter drops an interrupt that comes while a destructor or a callback runs, of which a library that
    transfers a file has many. This thread only waits.
    """
    thread = _Work(work)
    thread.start()
    thread.join()
    if thread.error is not None:
        raise thread.error
    return thread.value[0]
