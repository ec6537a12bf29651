"""The request of `POST /v2/chat`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from core.api import Body, BodyPart
from core.api.bodies import MAX_MESSAGES, MAX_TOOLS, up_to

_REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "documents": "give documents in the messages",
        "citation_options": "answers have no citations",
        "logprobs": "log-probabilities are not given here",
    }
)


class ResponseFormat(BodyPart):
    """What the text must be."""

    type: Literal["text", "json_object"]
    json_schema: dict[str, Any] | None = None


class ChatBody(Body):
    """The fields that have a meaning here."""

    refused: ClassVar[Mapping[str, str]] = _REFUSED

    messages: Annotated[list[dict[str, Any]], up_to(MAX_MESSAGES, 1)]
    tools: Annotated[list[dict[str, Any]], up_to(MAX_TOOLS)] | None = None
    tool_choice: Literal["REQUIRED", "NONE"] | None = None
    response_format: ResponseFormat | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    p: float | None = None
    k: int | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
