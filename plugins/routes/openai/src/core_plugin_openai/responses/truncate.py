"""`truncation: auto`: whole turns are dropped from the beginning of a conversation until it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.api import ChatRequest, EngineClient, RequestError

Message = Mapping[str, Any]
TOO_LONG = "context_length_exceeded"


async def fitted(client: EngineClient, request: ChatRequest) -> ChatRequest:
    """Return an admitted request with as many of its last turns as leave room for the output.

    The system messages at the beginning and the last turn always stay; if those alone are too long, the request comes
    back as it is and is refused where every long prompt is. A conversation of n turns is rendered about log2(n) times.

    Raises:
        RequestError: The template refuses the conversation.
    """
    if await _fits(client, request):
        return request
    head, turns = _turns(request.messages)
    low, high, found = 1, len(turns) - 1, request
    while low <= high:
        drop = (low + high) // 2
        kept = [*head, *(message for turn in turns[drop:] for message in turn)]
        shorter = replace(request, messages=kept)
        if await _fits(client, shorter):
            found, high = shorter, drop - 1
        else:
            low = drop + 1
    return found


async def _fits(client: EngineClient, request: ChatRequest) -> bool:
    try:
        ids = await client.render(request, admitted=True)
    except RequestError as error:
        if error.code != TOO_LONG:
            raise
        return False
    return len(ids) + (request.sampling["max_tokens"] or 1) <= client.max_model_len


def _turns(messages: Sequence[Message]) -> tuple[list[Message], list[list[Message]]]:
    """Return the system messages at the beginning, and the turns; each begins with what the user says."""
    begin = next((at for at, message in enumerate(messages) if message["role"] != "system"), len(messages))
    turns: list[list[Message]] = []
    for message in messages[begin:]:
        if not turns or message["role"] == "user":
            turns.append([])
        turns[-1].append(message)
    return list(messages[:begin]), turns
