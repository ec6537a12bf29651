"""The body of `POST /v1/responses`. Types are strict; ranges are checked by `SamplingParams`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from core.api.bodies import MAX_MESSAGES, MAX_TOOLS, Body, BodyPart, few, up_to
from core_plugin_openai.protocol import SharedFields

MAX_METADATA = 16
LOGPROBS = "message.output_text.logprobs"

Label = Annotated[str, Field(max_length=512)]
MetadataKey = Annotated[str, Field(max_length=64)]
MAX_EXTRA = 1024
ExtraArgument = str | int | float | Annotated[list[str | int | float], up_to(MAX_EXTRA)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Summary = Literal["auto", "concise", "detailed"]
Include = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]

_REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "prompt": "prompt templates are not kept here; send instructions and input",
        "conversation": "conversations are not kept here; use previous_response_id",
        "context_management": "conversations are not compacted; use truncation",
        "moderation": "answers are not moderated",
        "structured_outputs": "ask with text.format",
        "response_format": "ask with text.format",
        "json_schema": "ask with text.format",
        "grammar": "grammars are for /v1/chat/completions",
        "messages": "send the messages as input",
        "max_tokens": "it is called max_output_tokens here",
        "n": "a response is one answer",
    }
)


class ReasoningOptions(BodyPart):
    """How much the model thinks; told to the chat template. Summaries are not made: the thinking itself is sent."""

    effort: Effort | None = None
    summary: Summary | None = None
    generate_summary: Summary | None = None


class TextFormat(BodyPart):
    """Format that the answer's text must have."""

    type: Literal["text", "json_object", "json_schema"]
    name: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextOptions(BodyPart):
    """The `text` field."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class StreamOptions(BodyPart):
    """Accepted; events are never padded."""

    include_obfuscation: bool | None = None


class ResponsesBody(Body, SharedFields):
    """`POST /v1/responses`."""

    refused: ClassVar[Mapping[str, str]] = _REFUSED

    input: str | Annotated[list[dict[str, Any]], up_to(MAX_MESSAGES, 1)] | None = None
    instructions: str | None = None
    previous_response_id: Label | None = None
    store: bool | None = None
    background: bool | None = None
    stream_options: StreamOptions | None = None
    include: Annotated[list[Include], up_to(16)] | None = None
    tools: Annotated[list[dict[str, Any]], up_to(MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    top_logprobs: int | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: Annotated[dict[MetadataKey, Label], few(MAX_METADATA)] | None = None
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    service_tier: Label | None = None

    vllm_xargs: Annotated[dict[str, ExtraArgument], few(MAX_EXTRA)] | None = None

    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether log-probabilities are part of the answer."""
        return LOGPROBS in (self.include or ()) or bool(self.top_logprobs)

    @classmethod
    def harmless(cls, name: str, fields: Mapping[str, Any]) -> bool:
        """Whether a refused field asks for nothing, as it was sent."""
        return not fields[name] or (name == "n" and fields[name] == 1)
