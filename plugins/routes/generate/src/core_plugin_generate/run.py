"""Running the prompts of one request side by side, and gathering what comes of each sequence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.api import Answer, Delta, EngineClient, RequestError, Text, TextRequest, TokenScore

Take = Callable[[int, Delta], bool]
"""Takes what is new of a sequence of the prompt of a number; False: there is no room for more."""

Ended = Callable[[int], bool]
"""Told that all of the prompt of a number has come; False: there is no room for more."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a request.

    Attributes:
        ids: Its tokens.
        request: What the engine is asked.
        limit: Most tokens of the answer.
        count: How many answers it gets.
    """

    ids: list[int]
    request: TextRequest
    limit: int
    count: int


@dataclass(slots=True)
class Growing:
    """One answer to one prompt, growing.

    Attributes:
        scores: Of its tokens, as far as they were asked for.
    """

    text: str = ""
    ids: list[int] = field(default_factory=list)
    scores: list[TokenScore] = field(default_factory=list)
    reason: str | None = None
    stopped_by: str | int | None = None

    def take(self, delta: Delta) -> None:
        """Add what is new."""
        self.text += "".join([event.text for event in delta.events if isinstance(event, Text)])
        self.ids += delta.token_ids
        self.scores += delta.scores
        if delta.finish is not None:
            self.reason, self.stopped_by = delta.finish.reason, delta.finish.stop


async def prompt_of(
    client: EngineClient,
    prompt: str | list[int],
    sampling: Mapping[str, Any],
    limit: int,
    **asked: Any,
) -> Prompt:
    """Return a prompt whose answer fits the model's length.

    Args:
        limit: Most tokens; -1: as many as fit.
        asked: Further fields of `TextRequest`.

    Raises:
        RequestError: There is no text, or no room for an answer.
    """
    ids = await client.tokenize(prompt) if isinstance(prompt, str) else prompt
    if not ids:
        raise RequestError("the prompt is empty", param="prompt")
    check_length(client, len(ids))
    room = client.max_model_len - len(ids)
    most = room if limit < 0 else min(limit, room)
    request = TextRequest(prompts=[ids], sampling={**sampling, "max_tokens": most}, only_prompt=not most, **asked)
    return Prompt(list(ids), request, most, int(sampling.get("n") or 1))


def check_length(client: EngineClient, tokens: int) -> None:
    """Refuse a prompt that leaves no room for an answer. Raises `RequestError`."""
    if tokens >= client.max_model_len:
        said = f"the prompt has {tokens} tokens, which with an answer is more than the model's {client.max_model_len}"
        raise RequestError(said, param="prompt", code="context_length_exceeded")


async def opened(client: EngineClient, prompts: Sequence[Prompt], prefix: str) -> list[Answer]:
    """Return the answers to prompts, none of which has begun. Raises `RequestError`."""
    return [await client.open(prompt.request, prefix=prefix) for prompt in prompts]


async def run(
    answers: Sequence[Answer], take: Take, ended: Ended, room: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Run answers side by side; one that fails, and the end of whoever waits for this, ends all.

    Args:
        room: Awaited where `take` or `ended` have returned False.

    Raises:
        RequestError: As `Answer.run`.
    """
    turns = asyncio.Lock()  # one at a time waits for the client

    async def more() -> bool:
        if room is not None:
            async with turns:
                await room()
        return True

    async def one(number: int) -> None:
        def given(deltas: Sequence[Delta]) -> bool:
            room = [take(number, delta) for delta in deltas]  # all of them, whether or not there is room
            return all(room)

        await answers[number].run(given, more)
        if not ended(number):
            await more()

    if len(answers) == 1:
        await one(0)
        return
    tasks = [asyncio.create_task(one(number)) for number in range(len(answers))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
