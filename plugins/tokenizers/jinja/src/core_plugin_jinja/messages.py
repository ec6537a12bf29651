"""Conversations as chat templates expect them: plain data, and contents in the form that they read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.api import RequestError
from core_plugin_jinja.meter import spend

_REASONING = ("reasoning", "reasoning_content", "thinking")
_MAX_DEPTH = 64
_CHARS_PER_STEP = 4096


def plain_messages(
    messages: Any, text: Callable[[str], str] = str, *, parts: bool = False, texts: bool = False
) -> list[dict[str, Any]]:
    """Return fresh messages that a template may see.

    Every message has a content, empty where there was none; other fields that were null are absent.

    Args:
        text: What becomes of every text but roles and field names.
        parts: Contents are lists of text parts, an empty text is an empty list; else they are texts.
        texts: A content of one text is a text even so: for templates that take both.

    Raises:
        RequestError: Not a list of messages with roles, or content that is not text; `param` is `messages`.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise _refusal("messages must be a list of messages")
    if not messages:
        raise _refusal("messages must not be empty")
    return [_message(i, message, text, parts, texts) for i, message in enumerate(messages)]


def plain_data(value: Any, text: Callable[[str], str] = str, depth: int = 0) -> Any:
    """Return `value` rebuilt of plain JSON types, so that a template gets hold of no method but theirs.

    Args:
        text: What becomes of every text in it, the names of fields included.

    Raises:
        RequestError: It holds something else, or is nested too deeply.
    """
    if type(value) is str:
        spend(1 + len(value) // _CHARS_PER_STEP)
        return text(value)
    if value is None or type(value) in (int, float, bool):
        return value
    if depth > _MAX_DEPTH:
        raise _refusal(f"messages, tools and template variables may be nested at most {_MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        spend(len(value))
        return {text(str(key)): plain_data(item, text, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        spend(len(value))
        return [plain_data(item, text, depth + 1) for item in value]
    for kind in (bool, int, float, str):  # subclasses, such as enumerations
        if isinstance(value, kind):
            return text(kind.__str__(value)) if kind is str else kind(value)
    raise _refusal(f"messages, tools and template variables must be plain JSON data, not {type(value).__name__}")


def _message(index: int, message: Any, text: Callable[[str], str], parts: bool, texts: bool) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise _refusal(f"messages[{index}] must be an object with a role")
    plain: dict[str, Any] = plain_data(_present(_with_calls(index, message)), text)
    plain["role"] = str(message["role"])  # templates write it between their own marks
    plain["content"] = _content(index, plain.get("content", ""), parts, texts)
    reasoning = next((plain[name] for name in _REASONING if name in plain), None)
    if reasoning is not None:  # templates differ in the name that they read
        plain.update({name: reasoning for name in _REASONING if name not in plain})
    return plain


def _content(index: int, content: Any, parts: bool, single: bool) -> str | list[dict[str, str]]:
    if not isinstance(content, str | list):
        raise _refusal(f"messages[{index}].content must be a text or a list of text parts")
    texts = [content] if isinstance(content, str) else [_part(index, part) for part in content]
    if not parts or (single and len(texts) == 1):
        return "\n".join(texts)
    return [{"type": "text", "text": one} for one in texts] if any(texts) else []


def _part(index: int, part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else part
    if not isinstance(text, str):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        raise _refusal(f"messages[{index}].content has a part of type {kind!r}; this model takes text only")
    return text


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Clients send back every field of an answer; templates ask whether a field is there, not whether it is null."""
    return {name: value for name, value in fields.items() if value is not None}


def _with_calls(index: int, message: Mapping[str, Any]) -> Mapping[str, Any]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list | tuple):
        return message
    return {**message, "tool_calls": [_call(index, call) for call in calls] or None}


def _call(index: int, call: Any) -> Mapping[str, Any]:
    if not isinstance(call, Mapping):
        raise _refusal(f"messages[{index}].tool_calls must hold objects")
    function = call.get("function")
    if not isinstance(function, Mapping):
        return _present(call)
    return {**_present(call), "function": _present(function)}


def _refusal(message: str) -> RequestError:
    return RequestError(message, param="messages")
