"""Running the prompts of one request side by side, and gathering what comes of each sequence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from core.api import RequestError
from core.api.routes import EngineClient

Chunk = dict[str, Any]
Pair = tuple[float | None, int]
"""A log-probability and the token that it is of."""

IDS = {"return_token_ids": True, "return_tokens_as_token_ids": True}
"""Fields that have chunks name tokens by their ids."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a request.

    Attributes:
        ids: Its tokens.
        fields: Of a completion request, without prompt.
        limit: Most tokens of the answer.
    """

    ids: list[int]
    fields: Mapping[str, Any]
    limit: int

    @property
    def body(self) -> dict[str, Any]:
        """The completion request."""
        return {**self.fields, **IDS, "prompt": self.ids, "max_tokens": self.limit}


@dataclass(slots=True)
class Answer:
    """One answer to one prompt, growing.

    Attributes:
        logprobs: Of the answer's tokens, as far as they were asked for.
        tops: The most likely tokens at each of them, best first.
    """

    text: str = ""
    ids: list[int] = field(default_factory=list)
    logprobs: list[Pair] = field(default_factory=list)
    tops: list[list[Pair]] = field(default_factory=list)
    prompt_logprobs: list[Mapping[str, Any] | None] = field(default_factory=list)
    reason: str | None = None
    stopped_by: str | int | None = None

    def take(self, piece: Mapping[str, Any]) -> None:
        """Add a piece of a chunk."""
        self.text += piece["text"]
        self.ids += piece.get("token_ids", ())
        self.prompt_logprobs = piece.get("prompt_logprobs") or self.prompt_logprobs
        scores = piece.get("logprobs")
        if scores:
            self.logprobs += [
                (score, _number(name)) for name, score in zip(scores["tokens"], scores["token_logprobs"], strict=True)
            ]
            self.tops += [_sorted(top) for top in scores["top_logprobs"]]
        if piece["finish_reason"] is not None:
            self.reason, self.stopped_by = piece["finish_reason"], piece.get("stop_reason")


def _sorted(top: Mapping[str, float] | None) -> list[Pair]:
    pairs: list[tuple[float, int]] = [(score, _number(name)) for name, score in (top or {}).items()]
    return [(score, token) for score, token in sorted(pairs, key=lambda pair: -pair[0])]


def _number(name: str) -> int:
    return int(name.removeprefix("token_id:"))


async def prompt_of(client: EngineClient, prompt: str | list[int], fields: Mapping[str, Any], limit: int) -> Prompt:
    """Return a prompt whose answer fits the model's length.

    Args:
        limit: Most tokens; -1: as many as fit.

    Raises:
        RequestError: There is no text, or no room for an answer.
    """
    ids = await client.tokenize(prompt) if isinstance(prompt, str) else prompt
    if not ids:
        raise RequestError("the prompt is empty", param="prompt")
    check_length(client, len(ids))
    room = client.max_model_len - len(ids)
    return Prompt(list(ids), fields, room if limit < 0 else min(limit, room))


def check_length(client: EngineClient, tokens: int) -> None:
    """Refuse a prompt that leaves no room for an answer. Raises `RequestError`."""
    if tokens >= client.max_model_len:
        said = f"the prompt has {tokens} tokens, which with an answer is more than the model's {client.max_model_len}"
        raise RequestError(said, param="prompt", code="context_length_exceeded")


async def run(client: EngineClient, prompts: Sequence[Prompt]) -> AsyncGenerator[tuple[int, Chunk], None]:
    """Yield `(number of the prompt, chunk)` as they come; closing it aborts all. Raises `RequestError`."""
    if len(prompts) == 1:
        async with aclosing(client.complete(prompts[0].body)) as chunks:
            async for chunk in chunks:
                yield 0, chunk
        return
    queue: asyncio.Queue[tuple[int, Chunk | Exception | None]] = asyncio.Queue(maxsize=len(prompts))

    async def pump(number: int) -> None:
        end: Exception | None = None
        try:
            async with aclosing(client.complete(prompts[number].body)) as chunks:
                async for chunk in chunks:
                    await queue.put((number, chunk))
        except Exception as error:
            end = error
        await queue.put((number, end))

    tasks = [asyncio.create_task(pump(number)) for number in range(len(prompts))]
    try:
        left = len(tasks)
        while left:
            number, item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                left -= 1
            else:
                yield number, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
