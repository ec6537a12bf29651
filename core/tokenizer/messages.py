"""Conversations as chat templates expect them: plain data, text content, tool arguments as objects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.api.errors import RequestError

_REASONING = ("reasoning", "reasoning_content", "thinking")
_MAX_DEPTH = 64


def plain_messages(messages: Any) -> list[dict[str, Any]]:
    """Return fresh messages that a template may see.

    Raises:
        RequestError: Not a list of messages with roles, or content that is not text; `param` is `messages`.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise _refusal("messages must be a list of messages")
    if not messages:
        raise _refusal("messages must not be empty")
    return [_message(i, message) for i, message in enumerate(messages)]


def plain_data(value: Any, depth: int = 0) -> Any:
    """Return `value` rebuilt of plain JSON types, so that a template gets hold of no method but theirs.

    Raises:
        RequestError: It holds something else, or is nested too deeply.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if depth > _MAX_DEPTH:
        raise _refusal(f"messages, tools and template variables may be nested at most {_MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {str(key): plain_data(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(item, depth + 1) for item in value]
    for kind in (bool, int, float, str):  # subclasses, such as enumerations
        if isinstance(value, kind):
            return kind.__str__(value) if kind is str else kind(value)
    raise _refusal(f"messages, tools and template variables must be plain JSON data, not {type(value).__name__}")


def _message(index: int, message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise _refusal(f"messages[{index}] must be an object with a role")
    plain: dict[str, Any] = plain_data(message)
    if isinstance(plain.get("content"), list):
        plain["content"] = _joined(index, plain["content"])
    elif not isinstance(plain.get("content"), str | None):
        raise _refusal(f"messages[{index}].content must be a text or a list of text parts")
    if isinstance(plain.get("tool_calls"), list):
        plain["tool_calls"] = [_tool_call(index, call) for call in plain["tool_calls"]]
    reasoning = next((plain[name] for name in _REASONING if plain.get(name) is not None), None)
    if reasoning is not None:  # templates differ in the name that they read
        plain.update({name: reasoning for name in _REASONING if plain.get(name) is None})
    return plain


def _joined(index: int, parts: list[Any]) -> str:
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else part
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise _refusal(f"messages[{index}].content has a part of type {kind!r}; this model takes text only")
        texts.append(text)
    return "\n".join(texts)


def _tool_call(index: int, call: Any) -> dict[str, Any]:
    """Clients send arguments as JSON text; templates write them with `tojson`, which would quote a text again."""
    if not isinstance(call, dict):
        raise _refusal(f"messages[{index}].tool_calls must hold objects")
    function = call.get("function")
    if isinstance(function, dict) and isinstance(function.get("arguments"), str):
        return call | {"function": function | {"arguments": _arguments(function["arguments"])}}
    return call


def _arguments(text: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text  # a model's own broken call, in the history: the template shows it as it was
    return found if isinstance(found, dict) else text


def _refusal(message: str) -> RequestError:
    return RequestError(message, param="messages")
