"""Steps of an engine that runs where it is asked, on behalf of whoever waits for what they bring."""

from __future__ import annotations

from core.api.errors import CoreError, EngineError
from core.engine.client import SyncEngine
from core.engine.messages import Failed, FromEngine


def step(engine: SyncEngine) -> list[FromEngine]:
    """Run a step and return what it brings; somebody waits for more.

    Raises:
        CoreError: The engine failed; the error is its own.
        EngineError: CORE-E152, it has nothing left to do.
    """
    messages = engine.step()
    if not messages:
        text = "the engine has no work left, but requests are open."
        raise EngineError("CORE-E152", text, hint="Report this as a bug.")
    for message in messages:
        if isinstance(message, Failed):
            raise CoreError.from_dict(message.error)
    return messages
