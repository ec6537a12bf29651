"""Messages as they arrive from the other process: what is none is dropped and counted, and hurts nobody."""

from __future__ import annotations

import logging
from typing import Any, Generic, TypeVar

import msgspec

from core.engine.messages import CallResult, Failed, FromEngine, Outputs

logger = logging.getLogger(__name__)

T = TypeVar("T")

_HANDLE_BYTES = 8
_TOKEN_BYTES = 4


class Inbound(Generic[T]):
    """Reads messages of one kind (`ToEngine`, `FromEngine`).

    Attributes:
        dropped: How many could not be read.
    """

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self.dropped = 0

    def read(self, data: bytes) -> T | None:
        """Return the message in `data`, or None if there is none."""
        try:
            message = self._decoder.decode(data)
            if not whole(message):
                raise ValueError("its parts do not belong together")
        except Exception as error:  # of the library, or of a type that checks its values: all mean the same
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:  # each time that the number has doubled
                logger.error("a message of %d bytes was dropped, number %d: %s", len(data), self.dropped, error)
            return None
        return message


def whole(message: Any) -> bool:
    """Whether the parts of a message belong together, as far as its types do not say so."""
    if isinstance(message, Outputs):
        return (
            len(message.handles) % _HANDLE_BYTES == 0
            and len(message.handles) // _HANDLE_BYTES * _TOKEN_BYTES == len(message.tokens)
            and all(0 <= place * _TOKEN_BYTES < len(message.tokens) for place in message.logprobs)
        )
    if isinstance(message, CallResult | Failed) and message.error is not None:
        return all(isinstance(message.error.get(name), str) for name in ("code", "message"))
    return True


def read_from_engine(inbound: Inbound[FromEngine], data: bytes) -> FromEngine | None:
    """As `Inbound.read`; statistics also count what was dropped here."""
    message = inbound.read(data)
    if inbound.dropped and isinstance(message, Outputs) and message.stats is not None:
        message.stats.dropped_messages += inbound.dropped
    return message
