"""Conversations and tools as chat templates expect them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from core.server.errors import ApiError
from core.server.openai.protocol import ChatBody

REASONING_NAMES = ("reasoning", "reasoning_content")
"""What the thinking in a message is called, first by today's clients, then by older ones."""

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})
_RESERVED = frozenset(
    {
        "messages",
        "conversation",
        "tools",
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "tokenize",
        "chat_template",
        "return_tensors",
        "return_dict",
        "self",
    }
)


def normalise_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Check roles and contents, join text parts, and parse the arguments of earlier tool calls.

    Raises:
        ApiError: 400 naming the message and field at fault.
    """
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def template_kwargs(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the request's own template variables; names that core sets itself are refused."""
    for name in given or ():
        if name in _RESERVED or not name.isidentifier() or name.startswith("_"):
            message = f"chat_template_kwargs must not set '{name[:64]}'."
            raise ApiError(400, message, param="chat_template_kwargs")
    return dict(given or {})


def chosen_tools(body: ChatBody) -> list[dict[str, Any]]:
    """Return the tools that the model may call. Raises `ApiError` 400 for a choice that cannot be enforced."""
    choice = body.tool_choice
    for index, tool in enumerate(body.tools or ()):
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict) or not _name(function):
            message = "a tool must be {'type': 'function', 'function': {'name': ...}}."
            raise ApiError(400, f"tools[{index}]: {message}", param=f"tools[{index}]")
    if choice is None or choice == "auto":
        return list(body.tools or ())
    if choice == "none":
        return []
    named = isinstance(choice, dict) and choice.get("type") == "function"
    if choice == "required" or named:
        message = "A call cannot be enforced without structured output, which is not available: use 'auto' or 'none'."
        raise ApiError(400, message, param="tool_choice", code="unsupported_parameter")
    raise ApiError(400, "tool_choice must be 'none', 'auto', 'required' or a function.", param="tool_choice")


def _name(function: Mapping[str, Any]) -> bool:
    name = function.get("name")
    return isinstance(name, str) and 0 < len(name) <= 256


def _message(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise ApiError(400, f"{where}.role must be one of {', '.join(sorted(ROLES))}.", param=f"{where}.role")
    result = {**message, "content": _content(message.get("content"), f"{where}.content")}
    calls = message.get("tool_calls")
    if calls:
        result["tool_calls"] = _calls(calls, f"{where}.tool_calls")
    else:
        result.pop("tool_calls", None)
    result.update(_reasoning(message, where))
    if result["content"] is None and not (calls and role == "assistant"):
        raise ApiError(400, f"{where}.content is missing.", param=f"{where}.content")
    return result


def _reasoning(message: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the thinking of an earlier answer under both of its names: templates know one or the other."""
    said = {name: message[name] for name in REASONING_NAMES if message.get(name) is not None}
    for name, text in said.items():
        if not isinstance(text, str):
            raise ApiError(400, f"{where}.{name} must be a text.", param=f"{where}.{name}")
    return dict.fromkeys(REASONING_NAMES, next(iter(said.values()))) if said else {}


def _content(content: Any, where: str) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ApiError(400, f"{where} must be a text or a list of parts.", param=where)
    return "\n".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in _TEXT_PARTS:
        raise ApiError(400, f"{where}: this model reads text parts only.", param=where, code="unsupported_content")
    text = part.get("text", part.get("refusal"))
    if not isinstance(text, str):
        raise ApiError(400, f"{where}.text must be a text.", param=f"{where}.text")
    return text


def _calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise ApiError(400, f"{where} must be a list.", param=where)
    return [_call(call, f"{where}[{index}]") for index, call in enumerate(calls)]


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not _name(function):
        raise ApiError(400, f"{where}.function must have a name.", param=f"{where}.function")
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
        raise ApiError(400, f"{where} must be a JSON object.", param=where)
    return value
