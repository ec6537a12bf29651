"""Messages as they arrive from the other process: what is none is dropped and counted, and hurts nobody."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from core.api.sampling_params import SamplingParams
from core.engine.messages import Add, CallResult, Failed, FromEngine, Logprobs, Outputs

logger = logging.getLogger(__name__)

T = TypeVar("T")

_HANDLE_BYTES = 8
_TOKEN_BYTES = 4


class Inbound(Generic[T]):
    """Reads messages of one kind (`ToEngine`, `FromEngine`).

    Args:
        vocab_size: Token ids of outputs are smaller than that.

    Attributes:
        dropped: How many could not be read, or cannot be meant.
    """

    def __init__(self, kind: Any, vocab_size: int = 2**31) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._vocab_size = vocab_size
        self.dropped = 0

    def read(self, data: bytes) -> T | None:
        """Return the message in `data`, or None if there is none."""
        try:
            message = self._decoder.decode(data)
            if not whole(message, self._vocab_size):
                raise ValueError("its parts do not belong together")
        except Exception as error:  # of the library, or of a type that checks its values: all mean the same
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:  # each time that the number has doubled
                logger.error("a message of %d bytes was dropped, number %d: %s", len(data), self.dropped, error)
            return None
        return message


def whole(message: Any, vocab_size: int) -> bool:
    """Whether the parts of a message belong together, as far as its types do not say so."""
    if isinstance(message, Outputs):
        return _whole_outputs(message, vocab_size)
    if isinstance(message, CallResult | Failed) and message.error is not None:
        return all(isinstance(message.error.get(name), str) for name in ("code", "message"))
    return True


def _whole_outputs(outputs: Outputs, vocab_size: int) -> bool:
    count = len(outputs.handles) // _HANDLE_BYTES
    if len(outputs.handles) % _HANDLE_BYTES or count * _TOKEN_BYTES != len(outputs.tokens):
        return False
    scores = list(outputs.logprobs.values())
    for positions in outputs.prompt_logprobs.values():
        scores += positions
    return (
        _tokens(outputs.tokens, vocab_size)
        and all(0 <= place < count for place in outputs.logprobs)
        and all(_scored(one, vocab_size) for one in scores)
    )


def possible(add: Add, vocab_size: int) -> bool:
    """Whether a request's tokens are a model's of this vocabulary, so that no step fails on them."""
    return (
        len(add.prompt) > 0
        and _tokens(add.prompt, vocab_size)
        and _tokens(add.generated, vocab_size)
        and add.params.n == 1
        and all(0 <= token < vocab_size for token in _named(add.params))
    )


def _tokens(data: bytes, vocab_size: int) -> bool:
    """Whether `data` holds ids of tokens; read as unsigned numbers, negative ones are too large."""
    if not data:
        return True
    return len(data) % _TOKEN_BYTES == 0 and int(np.frombuffer(data, "<u4").max()) < vocab_size


def _named(params: SamplingParams) -> Iterator[int]:
    """Yield the ids that index the vocabulary."""
    for ids in (params.allowed_token_ids, params.logit_bias, params.logprob_token_ids, *params.bad_token_ids):
        yield from ids or ()


def _scored(scores: Logprobs, vocab_size: int) -> bool:
    return len(scores.ids) == len(scores.values) > 0 and max(scores.ids) < vocab_size


def read_from_engine(inbound: Inbound[FromEngine], data: bytes) -> FromEngine | None:
    """As `Inbound.read`; statistics also count what was dropped here."""
    message = inbound.read(data)
    if inbound.dropped and isinstance(message, Outputs) and message.stats is not None:
        message.stats.dropped_messages += inbound.dropped
    return message
