"""An engine in the caller's process, run step by step."""

from __future__ import annotations

import gc
import time
from collections import deque

from core.engine.core import EngineCore
from core.engine.messages import FromEngine, ToEngine
from core.engine.runner import STALL_SECONDS
from core.trim import trim


class LocalEngine:
    """`SyncEngine` on an `EngineCore`: nothing happens between calls of `step`."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._answers: deque[FromEngine] = deque()
        self.ready = core.ready

    def send(self, message: ToEngine) -> None:
        """Apply a message at once; its answers come with the next `step`."""
        self._answers.extend(self._core.handle(message))

    def step(self) -> list[FromEngine]:
        """Return pending answers, or run the loop until a step has settled; empty when there is no work."""
        while not self._answers and self._core.loop.busy:
            self._answers.extend(self._core.advance())
            if not self._answers and not self._core.loop.inflight:
                time.sleep(STALL_SECONDS)
        messages = list(self._answers)
        self._answers.clear()
        return messages

    def close(self) -> None:
        """Stop the workers, and free what they held: this process goes on."""
        self._core.close()
        gc.collect()  # layers and what they call refer to each other: weights would stay until the next collection
        trim()
