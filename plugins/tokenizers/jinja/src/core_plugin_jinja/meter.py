"""How much work one rendering of a chat template may make."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from core.api import RenderTimeoutError

_STEPS_PER_LOOK = 64


class Meter:
    """Budget of one rendering: the seconds of its thread's processor time that are left."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.thread_time() + seconds
        self._steps = 0

    def spend(self, steps: int) -> None:
        """Count work; look at the clock now and then. Raises `RenderTimeoutError`."""
        self._steps += steps
        if self._steps >= _STEPS_PER_LOOK:
            self._steps = 0
            # The thread's own time: waiting for others is not the template's fault.
            if time.thread_time() > self._end:
                raise RenderTimeoutError(
                    f"the chat template takes more than {self._seconds:g} s for these messages",
                    param="messages",
                    code="template_timeout",
                )


_meter: ContextVar[Meter | None] = ContextVar("core_render_meter", default=None)


@contextmanager
def metered(seconds: float) -> Iterator[None]:
    """Meter everything that templates do inside."""
    token = _meter.set(Meter(seconds))
    try:
        yield
    finally:
        _meter.reset(token)


def spend(steps: int = 1) -> None:
    """Charge the rendering that is under way, if there is one."""
    meter = _meter.get()
    if meter is not None:
        meter.spend(steps)
