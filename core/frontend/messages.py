"""Messages of a conversation: roles, contents and earlier calls, checked and made plain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from core.api.errors import RequestError

REASONING_NAMES = ("reasoning", "reasoning_content")
"""Names of the thinking in a message, first today's clients', then those of older ones."""

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_SILENT = frozenset({"assistant", "tool", "function"})
"""Roles whose messages need no content: an answer may be calls alone, a tool may return nothing."""

MAX_NAME = 256
_INVALID = "invalid_arguments"
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})


def checked_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Check roles and contents, and parse the arguments of earlier calls. Raises `RequestError`."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise RequestError("messages must be a list of messages", param="messages")
    if not messages:
        raise RequestError("messages must not be empty", param="messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def is_named(function: Mapping[str, Any]) -> bool:
    """Whether a function has a name of a decent length."""
    name = function.get("name")
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME


def _message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} must be an object with a role", param=where)
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise RequestError(f"{where}.role must be one of {', '.join(sorted(ROLES))}", param=f"{where}.role")
    result = {**message, "content": _content(message, role, f"{where}.content")}
    calls = result.pop("tool_calls", None)
    if calls is not None and (found := _calls(calls, f"{where}.tool_calls")):
        result["tool_calls"] = found
    result.update(_reasoning(message, where))
    return result


def _reasoning(message: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the thinking of an earlier answer under both of its names: templates know one or the other."""
    said = {name: message[name] for name in REASONING_NAMES if message.get(name) is not None}
    for name, text in said.items():
        if not isinstance(text, str):
            raise RequestError(f"{where}.{name} must be a text", param=f"{where}.{name}")
    return dict.fromkeys(REASONING_NAMES, next(iter(said.values()))) if said else {}


def _content(message: Mapping[str, Any], role: str, where: str) -> str | list[dict[str, str]]:
    content = message.get("content")
    if content is None and role not in _SILENT:
        raise RequestError(f"{where} is missing", param=where)
    if not content and role == "assistant" and isinstance(message.get("refusal"), str):
        content = message["refusal"]  # the field of an answer that is a refusal and nothing else
    if content is None or isinstance(content, str):
        return content or ""
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
    if not isinstance(function, Mapping) or not is_named(function):
        raise RequestError(f"{where}.function must have a name", param=f"{where}.function")
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"), where)}}


def _arguments(arguments: Any, where: str) -> Mapping[str, Any]:
    """Templates iterate over arguments, clients send them as JSON text."""
    value = _parsed(arguments)
    if not isinstance(value, Mapping):
        where = f"{where}.function.arguments"
        raise RequestError(f"{where} must be a JSON object", param=where)
    return value


def _parsed(arguments: Any) -> Any:
    """Return the arguments of a call as templates read them: the object that a JSON text spells, `{}` for no text.

    A text that spells no object is a model's own broken call in the history. It becomes the only field of an object,
    since many templates go through the fields.
    """
    found = arguments
    if isinstance(arguments, str):
        try:
            found = orjson.loads(arguments.strip() or "{}")
        except orjson.JSONDecodeError:
            found = arguments
        if not isinstance(found, dict | None):
            found = {_INVALID: arguments}
    return {} if found is None else found


def content_size(content: str | Sequence[Mapping[str, str]]) -> int:
    """Return how many characters a checked content has."""
    return len(content) if isinstance(content, str) else sum(len(part["text"]) for part in content)


def content_text(content: str | Sequence[Mapping[str, str]]) -> str:
    """Return a checked content as one text."""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)
