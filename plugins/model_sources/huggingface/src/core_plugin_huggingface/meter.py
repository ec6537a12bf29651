"""Bytes fetched so far, by several threads, in the form that the hub's client tells them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self


class Meter:
    """Adds up what the downloads of one model tell.

    Args:
        here: Bytes that were here before.
        total: Bytes of all files.
        progress: Told about both after every change.
    """

    def __init__(self, here: int, total: int, progress: Callable[[int, int], None] | None) -> None:
        self._done, self._total, self._progress = here, total, progress
        self._of: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, file: str, count: int) -> None:
        """Count bytes of a file; negative ones when it has to begin again."""
        with self._lock:
            self._of[file] = self._of.get(file, 0) + count
            self._done += count
            if self._progress is not None:
                self._progress(max(0, min(self._done, self._total)), self._total)

    def complete(self, file: str, size: int) -> None:
        """Put right what was not told of a file that is here now."""
        self.add(file, size - self._of.get(file, 0))

    def stop(self) -> None:
        """Tell nothing from now on, whatever downloads that were given up still fetch."""
        with self._lock:
            self._progress = None

    def bar(self, file: str) -> type:
        """Return a class that the client can use in the place of a progress bar, for one file."""
        meter = self

        class Bar:
            """As much of tqdm as a download uses."""

            def __init__(self, *arguments: Any, initial: int = 0, **options: Any) -> None:
                self.total = options.get("total")
                meter.add(file, initial)

            def update(self, count: float | None = 1) -> None:
                meter.add(file, int(count or 0))

            # With these two, what comes over the network is not counted beside what is written.
            def update_transfer(self, count: float | None = 1) -> None: ...

            def set_transfer_postfix_str(self, *arguments: Any, **options: Any) -> None: ...

            def close(self) -> None: ...

            def refresh(self) -> None: ...

            def set_description(self, *arguments: Any, **options: Any) -> None: ...

            def set_postfix_str(self, *arguments: Any, **options: Any) -> None: ...

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *details: object) -> None: ...

        return Bar
