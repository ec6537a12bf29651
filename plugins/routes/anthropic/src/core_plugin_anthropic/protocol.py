"""Request bodies of the Messages API. Blocks stay plain data here; `conversation` checks and reads them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from core.api.bodies import MAX_MESSAGES, MAX_TOOLS, Body, BodyPart, Priority, Salt, SamplingBody, up_to
from core.api.sampling import MAX_STOPS

_REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "mcp_servers": "servers of tools are not called from here; offer their tools and call them yourself",
        "container": "nothing is run here that would need one",
    }
)


class ToolChoice(BodyPart):
    """Whether the model must call a tool."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(BodyPart):
    """Whether the model thinks before it answers, and whether that is shown."""

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]
    budget_tokens: Annotated[int, Field(ge=1)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(BodyPart):
    """The JSON schema that the text must fit."""

    type: Literal["json_schema"]
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(BodyPart):
    """How much effort the answer is worth, and its format."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class PromptBody(Body):
    """Fields that make up the prompt; all of `POST /v1/messages/count_tokens`."""

    refused: ClassVar[Mapping[str, str]] = _REFUSED

    messages: Annotated[list[dict[str, Any]], up_to(MAX_MESSAGES, 1)]
    system: str | Annotated[list[dict[str, Any]], up_to(MAX_MESSAGES)] | None = None
    tools: Annotated[list[dict[str, Any]], up_to(MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    cache_control: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class Metadata(BodyPart):
    """Metadata of the request: the end user's id."""

    user_id: str | None = None


class MessagesBody(PromptBody, SamplingBody, fields=("temperature", "top_p", "top_k")):
    """`POST /v1/messages`; of core's sampling parameters it has those of Anthropic's API, and a seed."""

    max_tokens: Annotated[int, Field(ge=1)]
    stop_sequences: Annotated[list[str], up_to(MAX_STOPS)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stream: bool | None = None
    metadata: Metadata | None = None
    service_tier: str | None = None
    priority: Priority | None = None
    cache_salt: Salt | None = None
