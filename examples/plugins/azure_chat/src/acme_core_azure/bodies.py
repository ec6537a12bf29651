"""The request of a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from core.api import Body, BodyPart
from core.api.bodies import MAX_MESSAGES, MAX_TOOLS, up_to

_REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "data_sources": "nothing is searched here",
        "functions": "give tools",
        "function_call": "give tool_choice",
        "logprobs": "log-probabilities are not given here",
    }
)


class ResponseFormat(BodyPart):
    """What the text must be."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None


class StreamOptions(BodyPart):
    """What a stream tells besides the text."""

    include_usage: bool = False


class ChatBody(Body):
    """The fields that have a meaning here."""

    refused: ClassVar[Mapping[str, str]] = _REFUSED

    messages: Annotated[list[dict[str, Any]], up_to(MAX_MESSAGES, 1)]
    tools: Annotated[list[dict[str, Any]], up_to(MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    user: str | None = None
