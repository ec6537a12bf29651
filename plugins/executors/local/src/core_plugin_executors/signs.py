"""Signs of life of a worker process: bytes in a pipe, whatever its worker does meanwhile."""

from __future__ import annotations

import contextlib
import os
import threading
import time

SIGN_SECONDS = 0.5
"""How often the child gives one."""

SILENCE_SECONDS = 3.0
"""A child that gave none for so long is stopped, or holds its interpreter."""

_LOOK_SECONDS = 1.0
"""Most seconds that one look counts for: between two that are far apart this process may have been stopped itself."""


class SignsOfLife:
    """The parent's side of the pipe.

    Attributes:
        writing: Descriptor of the end that the child writes to.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self.writing, False)  # a parent that does not look must not hold up the child
        self._lock = threading.Lock()
        self._silent, self._looked = 0.0, time.monotonic()

    def recent(self) -> bool:
        """Whether the child gave a sign lately; safe from any thread. False once closed."""
        with self._lock:
            if self._reading < 0:
                return False
            now = time.monotonic()
            self._silent += min(now - self._looked, _LOOK_SECONDS)
            self._looked = now
            with contextlib.suppress(BlockingIOError):
                os.read(self._reading, 2**17)  # more than a pipe holds
                self._silent = 0.0
            return self._silent < SILENCE_SECONDS

    def close(self) -> None:
        """Close both ends. Harmless when called again."""
        with self._lock:
            if self._reading >= 0:
                os.close(self._reading)
                os.close(self.writing)
            self._reading = -1


def give_signs(writing: int) -> None:
    """Write a byte now and then, until nobody can read them any more. Runs in a thread of the child."""
    with contextlib.suppress(BrokenPipeError):
        while True:
            with contextlib.suppress(BlockingIOError):
                os.write(writing, b".")
            time.sleep(SIGN_SECONDS)
