"""Requests whose engine died: they go on in the next one, unless they may be the cause."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from core.api.errors import EngineError
from core.engine.client import AsyncEngine
from core.engine.messages import Add, ToEngine

WINDOW_SECONDS = 600.0
"""Restarts are counted within so long a time."""

MOST_DEATHS = 3
"""A request that was in flight at so many deaths is not run again."""

SUSPECT = (
    f"CORE-E180 the engine died {MOST_DEATHS} times while it worked on this request, which may be the cause: "
    "it is not run again"
)


@dataclass(slots=True)
class RestartBudget:
    """How often an engine may be started again: `most` times within ten minutes.

    Attributes:
        used: Restarts so far, in total.
    """

    most: int
    clock: Callable[[], float] = time.monotonic
    used: int = 0
    _times: deque[float] = field(default_factory=deque)

    def take(self) -> bool:
        """Say whether one more is allowed now, and count it if so."""
        now = self.clock()
        while self._times and now - self._times[0] >= WINDOW_SECONDS:
            self._times.popleft()
        if len(self._times) >= self.most:
            return False
        self._times.append(now)
        self.used += 1
        return True


@dataclass(frozen=True, slots=True)
class Revival:
    """How a link comes to its next engine.

    Attributes:
        start: Starts one. Raises `CoreError`.
        budget: How often that may be.
        on_lost: Told that an engine that was connected is gone.
        resume: Returns what the new engine is told first: everything that is in flight.
    """

    start: Callable[[], Awaitable[AsyncEngine]]
    budget: RestartBudget
    on_lost: Callable[[EngineError], None]
    resume: Callable[[], Iterable[ToEngine]]


def behind(message: Add, tokens: Sequence[int]) -> Add:
    """Return the message that has another engine go on with a request behind the tokens that came of it."""
    if not tokens:
        return message
    # Every position of the prompt was scored before the first token came.
    params = message.params if message.params.prompt_logprobs is None else message.params.replace(prompt_logprobs=None)
    return msgspec.structs.replace(message, params=params, generated=np.asarray(tokens, dtype="<i4").tobytes())


def at_work(live: Iterable[int], started: Sequence[int], rows: int) -> list[int]:
    """Return the handles that an engine of so many rows may have been working on when it died.

    Those that it said it had started, and, as nobody knows whom its last step admitted, the oldest of the others.
    """
    known = set(started)
    waiting = [handle for handle in live if handle not in known]
    return [*started, *waiting[: max(0, rows - len(started))]]
