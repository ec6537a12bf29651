"""Running an engine core on its own: a loop thread fed by a queue, with a heartbeat.

Whoever runs an engine this way serves people who wait for their first token: prompts that come together are spread
over a few steps, and a step is chosen as late as it can be, so that it holds whoever has arrived until then.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable

from core.engine.core import EngineCore
from core.engine.messages import Call, FromEngine, Outputs, Pulse, ToEngine

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
"""An idle engine reports its statistics this often, so that silence means trouble."""

STALL_SECONDS = 0.001
"""Pause when there is work but none of it can be scheduled yet (a participant holds it back)."""


class CoreRunner:
    """Applies queued messages and advances the loop until a `Shutdown` arrives.

    Args:
        emit: Receives every message for the client; called from the loop's thread.
        fit: Says whether the threads around the loop are alive; while it is False no heartbeat is sent.
    """

    def __init__(
        self, core: EngineCore, emit: Callable[[FromEngine], None], fit: Callable[[], bool] = lambda: True
    ) -> None:
        self._core, self._emit, self._fit = core, emit, fit
        self._inbox: queue.SimpleQueue[ToEngine] = queue.SimpleQueue()
        self._last_beat = 0.0
        self._was_busy = self._calling = False
        self._turned = self._well = time.monotonic()
        core.scheduler.spread = True

    def submit(self, message: ToEngine) -> None:
        """Queue a message; safe from any thread."""
        self._inbox.put(message)

    def note_dropped(self, total: int) -> None:
        """Say how many messages could not be read so far; safe from any thread."""
        self._core.dropped_messages = total

    def run(self) -> None:
        """Run until told to stop. Raises what the loop cannot survive (a worker is gone)."""
        while not self._core.stopping:
            self._turned = time.monotonic()
            if not self._core.loop.busy:
                self._beat(due=self._was_busy)  # whoever watches sees at once that all work is done
            self._was_busy = self._core.loop.busy
            self._apply_messages()
            progressed = self._advance() if self._core.loop.busy else False
            if not progressed and self._core.scheduler.has_work and not self._core.loop.inflight:
                time.sleep(STALL_SECONDS)
            self._beat()
        for message in self._core.settle_all():
            self._emit(message)

    def pulse(self) -> Pulse:
        """Return how the loop fares; safe from any thread."""
        healthy, now = self._core.healthy(), time.monotonic()
        if healthy:
            self._well = now
        return Pulse(now - min(self._turned, self._well), self._calling or self._core.loop.working, healthy)

    def _advance(self) -> bool:
        messages = self._core.advance()
        for message in messages:
            self._emit(message)
            self._last_beat = self._well = time.monotonic()
        return bool(messages)

    def _apply_messages(self) -> None:
        """Apply what is queued, and what arrives before the next step is due; when idle, wait for a message."""
        wait = self._core.loop.launch_wait() if self._core.loop.busy else HEARTBEAT_SECONDS
        try:
            while True:
                message = self._inbox.get(block=wait > 0, timeout=wait)
                self._calling = isinstance(message, Call)
                for answer in self._core.handle(message):
                    self._emit(answer)
                self._calling = False
                wait = self._core.loop.launch_wait()
        except queue.Empty:
            return

    def _beat(self, *, due: bool = False) -> None:
        now = time.monotonic()
        if not (due or now - self._last_beat >= HEARTBEAT_SECONDS) or not self._fit():
            return
        if self._core.healthy():
            self._last_beat = self._well = now
            self._emit(Outputs(stats=self._core.stats()))
        elif not self._core.loop.busy:
            self._calling = True
            self._core.probe()  # a step would find out
            self._calling = False
