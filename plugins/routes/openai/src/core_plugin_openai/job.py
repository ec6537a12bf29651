"""One request's answer. Whole answers are folded from the very pieces that a stream sends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from core.api import Answer, Delta, Outlet, Usage
from core_plugin_openai.protocol import StreamOptions

Piece = dict[str, Any]
"""An entry of a chunk's `choices`."""


class Format(Protocol):
    """Turns deltas into pieces, and pieces into a whole answer.

    Attributes:
        chunk_object, whole_object: Values of `object`.
    """

    chunk_object: str
    whole_object: str

    def pieces(self, delta: Delta) -> list[Piece]:
        """Return what is new of a sequence."""
        ...

    def head(self) -> dict[str, Any]:
        """Return top-level fields of a whole answer, and of a stream's first event."""
        ...

    def fold(self, piece: Piece) -> None:
        """Add a piece to the whole answer."""
        ...

    def choices(self) -> list[dict[str, Any]]:
        """Return the whole answer's choices, by index."""
        ...


@dataclass(slots=True)
class FormattedJob:
    """An answer in a format."""

    answer: Answer
    format: Format
    model: str
    options: StreamOptions = field(default_factory=StreamOptions)
    created: int = field(default_factory=lambda: int(time.time()))

    async def collect(self) -> bytes:
        """Return the whole answer as JSON."""

        def take(deltas: Sequence[Delta]) -> bool:
            for delta in deltas:
                for piece in self.format.pieces(delta):
                    self.format.fold(piece)
            return True

        await self.answer.run(take)
        whole = {
            **self._base(self.format.whole_object),
            "choices": self.format.choices(),
            "usage": _usage_object(self.answer.usage),
            **self.format.head(),
        }
        return orjson.dumps(whole)

    async def stream(self, outlet: Outlet) -> None:
        """Put the answer into an outlet as server-sent events; what one engine output brings is put at once."""
        # The fields that never change are encoded once; per event only the choice is.
        start = b"data: " + orjson.dumps(self._base(self.format.chunk_object))[:-1] + b',"choices":['
        usual, begun, usage_so_far = self._end({}), False, self.options.usage_so_far
        made, dumps, put = self.format.pieces, orjson.dumps, outlet.put

        def take(deltas: Sequence[Delta]) -> bool:
            nonlocal begun
            pieces = made(deltas[0]) if len(deltas) == 1 else [piece for delta in deltas for piece in made(delta)]
            if not pieces:
                return True
            end = self._end({}) if usage_so_far else usual
            first = end if begun else self._end(self.format.head())  # the first event's alone
            begun = True
            if len(pieces) == 1:
                return put(start + dumps(pieces[0]) + first)
            ends = [first, *[end] * (len(pieces) - 1)]
            return put(b"".join([start + dumps(piece) + last for piece, last in zip(pieces, ends)]))

        async def more() -> bool:
            await outlet.room()
            return True

        await self.answer.run(take, more)
        if self.options.include_usage:
            outlet.put(start + b'],"usage":' + orjson.dumps(_usage_object(self.answer.usage)) + b"}\n\n")

    def _base(self, kind: str) -> dict[str, Any]:
        return {"id": self.answer.id, "object": kind, "created": self.created, "model": self.model}

    def _end(self, head: dict[str, Any]) -> bytes:
        if self.options.include_usage:
            head["usage"] = _usage_object(self.answer.usage) if self.options.usage_so_far else None
        return b"]," + orjson.dumps(head)[1:] + b"\n\n" if head else b"]}\n\n"


def _usage_object(usage: Usage) -> dict[str, Any]:
    """Return OpenAI's usage object."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }
