"""Conversations: messages, tools and template variables, checked once for every front end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from core.api.errors import RequestError
from core.api.serving import AUTO, ChatRequest, ToolChoice
from core.api.templates import RENDER_SECONDS, TemplateInput
from core.frontend.answering.parsing import thinking_switches
from core.frontend.messages import checked_messages, content_size, content_text, is_named

MAX_TEMPLATE_ARGS = 64
_RESERVED = frozenset(
    {
        "messages",
        "conversation",
        "tools",
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "add_special_tokens",
        "truncation",
        "tokenize",
        "chat_template",
        "return_tensors",
        "return_dict",
        "self",
    }
)
"""Names that are no free variables of a template: core sets them, or other libraries give them a meaning."""
_FIELDS = frozenset(
    {"tools", "tool_choice", "documents", "add_generation_prompt", "continue_final_message", "add_special_tokens"}
)
_NONE: Mapping[str, Any] = MappingProxyType({})
_TEMPLATE = frozenset({"chat_template", "chat_template_kwargs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A prompt that a chat template renders.

    Attributes:
        messages: OpenAI's messages; afterwards contents are texts (empty where an answer or a tool gave none) or lists
            of `{"type": "text", "text": ...}`, the arguments of calls objects, and thinking stands under both of its
            names.
        tools: OpenAI's tools.
        tool_choice: Which tools may, or must, be called.
        documents: For templates that show documents.
        parallel_tool_calls: Whether an answer may hold more than one call.
        add_generation_prompt: End with the start of the assistant's turn.
        continue_final_message: End inside the last message, so that the model goes on with it.
        add_special_tokens: Let the tokenizer add its own special tokens; templates usually write them.
        template: Source of a template instead of the model's own template.
        template_args: Further variables that the template reads.

    Raises:
        RequestError: `param` names the field, message and part at fault.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = AUTO
    parallel_tool_calls: bool = True
    documents: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    template: str | None = None
    template_args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.continue_final_message and self.add_generation_prompt:
            raise RequestError(
                "continue_final_message and add_generation_prompt exclude each other", param="continue_final_message"
            )
        check_template_args(self.template_args)
        _check_tools(self.tools, self.tool_choice)
        object.__setattr__(self, "messages", checked_messages(self.messages))

    @property
    def offered(self) -> list[Mapping[str, Any]]:
        """Tools that the model may call."""
        return [] if self.tool_choice.mode == "none" else list(self.tools)

    @property
    def chars(self) -> int:
        """Characters of all contents."""
        return sum(content_size(message["content"]) for message in self.messages)

    @property
    def tail(self) -> str:
        """Text of the last message if it is the assistant's, which the answer may continue."""
        last = self.messages[-1]
        return content_text(last["content"]) if last["role"] == "assistant" else ""

    def template_input(self, defaults: Mapping[str, Any] = _NONE, seconds: float = RENDER_SECONDS) -> TemplateInput:
        """Return what a template is given.

        Args:
            defaults: Variables of the template that a request may replace.
            seconds: Processor time that the rendering may take.
        """
        return TemplateInput(
            messages=self.messages,
            tools=self.offered or None,
            documents=self.documents,
            variables={**defaults, **self.template_args},
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            seconds=seconds,
        )


def conversation_of(messages: Sequence[Mapping[str, Any]], named: Mapping[str, Any]) -> Conversation:
    """Return a conversation whose fields and template variables stand side by side.

    Args:
        named: Fields of `Conversation` (`template` is `chat_template`); everything else is a variable, and so is what
            `chat_template_kwargs` holds.

    Raises:
        RequestError: As `Conversation`.
    """
    fields = {name: named[name] for name in _FIELDS & named.keys() if named[name] is not None}
    choice = fields.get("tool_choice")
    if choice is not None and not isinstance(choice, ToolChoice):
        fields["tool_choice"] = ToolChoice.read(choice)
    free = {name: value for name, value in named.items() if name not in _FIELDS | _TEMPLATE}
    free.update(named.get("chat_template_kwargs") or {})
    return Conversation(messages=messages, template=named.get("chat_template"), template_args=free, **fields)


def check_template_args(given: Mapping[str, Any]) -> None:
    """Refuse variables that core sets itself, and names that are none. Raises `RequestError`."""
    if len(given) > MAX_TEMPLATE_ARGS:
        raise RequestError(
            f"template_args has {len(given)} entries; at most {MAX_TEMPLATE_ARGS}", param="template_args"
        )
    for name in given:
        if name in _RESERVED or not name.isidentifier() or name.startswith("_"):
            raise RequestError(f"template_args must not set '{name[:64]}'", param="template_args")


def _check_tools(tools: Sequence[Mapping[str, Any]], choice: ToolChoice) -> None:
    for index, tool in enumerate(tools):
        function, where = tool.get("function") if isinstance(tool, Mapping) else None, f"tools[{index}]"
        if not isinstance(function, Mapping) or tool.get("type") != "function" or not is_named(function):
            raise RequestError(f"{where} must be {{'type': 'function', 'function': {{'name': ...}}}}", param=where)
        _check_parameters(function.get("parameters"), where)
    if choice.demands and not tools:
        raise RequestError("tool_choice asks for a call, but there are no tools", param="tool_choice")
    if choice.mode == "function" and not any(tool["function"]["name"] == choice.name for tool in tools):
        raise RequestError(
            f"tool_choice names '{str(choice.name)[:64]}', which is none of the tools", param="tool_choice"
        )


def _check_parameters(schema: Any, where: str) -> None:
    """Refuse what describes no object: the arguments of a call always are one."""
    if schema is None:
        return
    if not isinstance(schema, Mapping):
        raise RequestError(f"{where}: the schema of its parameters must be an object", param=where)
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        said = f"{where}: the schema of its parameters must have the type 'object', as a call's arguments do"
        raise RequestError(said, param=where)
    if not isinstance(schema.get("properties"), Mapping | None):
        raise RequestError(f"{where}: 'properties' of its parameters must be an object", param=where)


def asked_conversation(asked: ChatRequest) -> Conversation:
    """Return the conversation that a route plugin asks about. Raises `RequestError` as `Conversation`."""
    thinking = {} if asked.thinking is None else thinking_switches(asked.thinking)
    return Conversation(
        messages=asked.messages,
        tools=asked.tools,
        tool_choice=asked.tool_choice,
        parallel_tool_calls=asked.parallel_tool_calls,
        documents=asked.documents,
        add_generation_prompt=asked.opened and not asked.continued,
        continue_final_message=asked.continued,
        add_special_tokens=asked.add_special_tokens,
        template=asked.template,
        template_args={**thinking, **asked.template_args},
    )
