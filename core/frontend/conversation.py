"""Conversations: messages, tools and template variables, checked once for every front end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from core.api.errors import RequestError
from core.tokenizer.messages import RESERVED_NAMES

REASONING_NAMES = ("reasoning", "reasoning_content")
"""What the thinking in a message is called, first by today's clients, then by older ones."""

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
MAX_NAME = 256
MAX_TEMPLATE_ARGS = 64
_FIELDS = frozenset(
    {"tools", "tool_choice", "documents", "add_generation_prompt", "continue_final_message", "add_special_tokens"}
)
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the model may, must or must not call; `name` is the function of mode `function`."""

    mode: Literal["auto", "none", "required", "function"] = "auto"
    name: str | None = None


AUTO = ToolChoice()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A prompt that a chat template renders.

    Attributes:
        messages: OpenAI's messages; afterwards contents are texts or lists of `{"type": "text", "text": ...}`, the
            arguments of calls objects, and thinking stands under both of its names.
        tools: OpenAI's tools.
        documents: For templates that show documents.
        parallel_tool_calls: Whether an answer may hold more than one call.
        add_generation_prompt: End with the start of the assistant's turn.
        continue_final_message: End inside the last message, so that the model goes on with it.
        add_special_tokens: Let the tokenizer add its own special tokens; templates usually write them.
        template: Jinja source instead of the model's own template.
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
        return sum(_size(message.get("content")) for message in self.messages)

    @property
    def tail(self) -> str:
        """Text of the last message if it is the assistant's, which the answer may continue."""
        last = self.messages[-1]
        return _text(last.get("content")) if last["role"] == "assistant" else ""

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `render_chat`, those that were left out not among them."""
        given: dict[str, Any] = {
            "tools": self.offered or None,
            "add_generation_prompt": self.add_generation_prompt,
            "continue_final_message": self.continue_final_message,
            "documents": self.documents,
            **self.template_args,
        }
        if self.add_special_tokens:
            given["add_special_tokens"] = True
        if self.template is not None:
            given["chat_template"] = self.template
        return given


def conversation_of(messages: Sequence[Mapping[str, Any]], named: Mapping[str, Any]) -> Conversation:
    """Return a conversation whose fields and template variables stand side by side.

    Args:
        named: Fields of `Conversation` (`template` is `chat_template`); everything else is a variable.

    Raises:
        RequestError: As `Conversation`.
    """
    fields = {name: named[name] for name in _FIELDS & named.keys() if named[name] is not None}
    free = {name: value for name, value in named.items() if name not in _FIELDS and name != "chat_template"}
    return Conversation(messages=messages, template=named.get("chat_template"), template_args=free, **fields)


def check_template_args(given: Mapping[str, Any]) -> None:
    """Refuse variables that core sets itself, and names that are none. Raises `RequestError`."""
    if len(given) > MAX_TEMPLATE_ARGS:
        raise RequestError(
            f"template_args has {len(given)} entries; at most {MAX_TEMPLATE_ARGS}", param="template_args"
        )
    for name in given:
        if name in RESERVED_NAMES or not name.isidentifier() or name.startswith("_"):
            raise RequestError(f"template_args must not set '{name[:64]}'", param="template_args")


def checked_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Check roles and contents, and parse the arguments of earlier calls. Raises `RequestError`."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise RequestError("messages must be a list of messages", param="messages")
    if not messages:
        raise RequestError("messages must not be empty", param="messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _check_tools(tools: Sequence[Mapping[str, Any]], choice: ToolChoice) -> None:
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or tool.get("type") != "function" or not _named(function):
            where = f"tools[{index}]"
            raise RequestError(f"{where} must be {{'type': 'function', 'function': {{'name': ...}}}}", param=where)
    if choice.mode in ("required", "function") and not tools:
        raise RequestError("tool_choice asks for a call, but there are no tools", param="tool_choice")
    if choice.mode == "function" and not any(tool["function"]["name"] == choice.name for tool in tools):
        raise RequestError(
            f"tool_choice names '{str(choice.name)[:64]}', which is none of the tools", param="tool_choice"
        )


def _named(function: Mapping[str, Any]) -> bool:
    name = function.get("name")
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME


def _message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} must be an object with a role", param=where)
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise RequestError(f"{where}.role must be one of {', '.join(sorted(ROLES))}", param=f"{where}.role")
    result = {**message, "content": _content(message.get("content"), f"{where}.content")}
    calls = message.get("tool_calls")
    if calls:
        result["tool_calls"] = _calls(calls, f"{where}.tool_calls")
    else:
        result.pop("tool_calls", None)
    result.update(_reasoning(message, where))
    if result["content"] is None and not (calls and role == "assistant"):
        raise RequestError(f"{where}.content is missing", param=f"{where}.content")
    return result


def _reasoning(message: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the thinking of an earlier answer under both of its names: templates know one or the other."""
    said = {name: message[name] for name in REASONING_NAMES if message.get(name) is not None}
    for name, text in said.items():
        if not isinstance(text, str):
            raise RequestError(f"{where}.{name} must be a text", param=f"{where}.{name}")
    return dict.fromkeys(REASONING_NAMES, next(iter(said.values()))) if said else {}


def _content(content: Any, where: str) -> str | list[dict[str, str]] | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        raise RequestError(f"{where} must be a text or a list of parts", param=where)
    return [{"type": "text", "text": _part(part, f"{where}[{index}]")} for index, part in enumerate(content)]


def _part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(kind, str) or kind not in _TEXT_PARTS:
        raise RequestError(f"{where}: this model reads text parts only", param=where, code="unsupported_content")
    text = part.get("text", part.get("refusal"))
    if not isinstance(text, str):
        raise RequestError(f"{where}.text must be a text", param=f"{where}.text")
    return text


def _calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, (list, tuple)):
        raise RequestError(f"{where} must be a list", param=where)
    return [_call(call, f"{where}[{index}]") for index, call in enumerate(calls)]


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not _named(function):
        raise RequestError(f"{where}.function must have a name", param=f"{where}.function")
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"), where)}}


def _arguments(arguments: Any, where: str) -> dict[str, Any]:
    """Templates iterate over arguments, clients send them as JSON text."""
    if arguments is None or arguments == "":
        return {}
    try:
        value = orjson.loads(arguments) if isinstance(arguments, str) else arguments
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        where = f"{where}.function.arguments"
        raise RequestError(f"{where} must be a JSON object", param=where)
    return value


def _size(content: Any) -> int:
    return len(content) if isinstance(content, str) else sum(len(part["text"]) for part in content or ())


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content or ())
