"""Input items: checked, numbered, and bounded to what a text model reads."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.api.bodies import MAX_NAME, invalid, name_field, optional_text, text_field
from core.api.errors import RequestError
from core_plugin_openai.responses.mcp import items as mcp

Item = dict[str, Any]
Find = Callable[[str], Item | None]

_REFERENCE = "item_reference"

_INPUT_ROLES = ("user", "assistant", "system", "developer")
_STATUSES = ("in_progress", "completed", "incomplete")
_BEYOND = {
    "input_image": "this model reads no images",
    "input_file": "this model reads no files",
    "input_audio": "this model reads no audio",
}


def new_id(prefix: str) -> str:
    """Return an item id that nobody else has."""
    return f"{prefix}_{uuid.uuid4().hex}"


def parse_input(given: str | Sequence[Mapping[str, Any]] | None, find: Find | None = None) -> list[Item]:
    """Return the items of a request's `input` in the form in which they are kept and listed; each has an id.

    Args:
        find: Returns the item that a reference names; None where nothing is kept.

    Raises:
        RequestError: 400 naming the item and field at fault.
    """
    if given is None:
        raise invalid("input", "is missing")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return [_item(item, f"input[{index}]", find) for index, item in enumerate(given)]


def _item(item: Mapping[str, Any], where: str, find: Find | None) -> Item:
    kind = item.get("type", "message" if "role" in item else _REFERENCE if item.keys() == {"id"} else None)
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is not None:
        return reader(item, where)
    if kind == _REFERENCE:
        return _referred(item, where, find)
    if not isinstance(kind, str):
        raise invalid(f"{where}.type", "must name a kind of item")
    message = f"{where}: items of type '{kind[:64]}' are not read here; {', '.join(_READERS)} are."
    raise _unsupported(message, f"{where}.type")


def _referred(item: Mapping[str, Any], where: str, find: Find | None) -> Item:
    if find is None:
        message = "this server keeps no items; send the item itself, or start it with --response-store."
        raise _unsupported(f"{where}: {message}", where)
    name = name_field(item, "id", where)
    found = find(name)
    if found is None:
        message = f"{where}: no response that is kept has an item '{name[:100]}'; send the item itself."
        raise RequestError(message, param=f"{where}.id", code="item_not_found")
    return found


def _message(item: Mapping[str, Any], where: str) -> Item:
    role = item.get("role")
    if not isinstance(role, str) or role not in _INPUT_ROLES:
        raise invalid(f"{where}.role", f"must be one of {', '.join(_INPUT_ROLES)}")
    mine = "output_text" if role == "assistant" else "input_text"
    texts = _texts_if_any if role == "assistant" else _texts  # a turn of calls alone may have none
    content = [_part(part, mine) for part in texts(item.get("content"), f"{where}.content")]
    return {"id": _id(item, "msg"), "type": "message", "status": _status(item), "role": role, "content": content}


def _part(text: str, kind: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": kind, "text": text}
    return {**part, "annotations": []} if kind == "output_text" else part


def _call(item: Mapping[str, Any], where: str) -> Item:
    return {
        "id": _id(item, "fc"),
        "type": "function_call",
        "status": _status(item),
        "call_id": name_field(item, "call_id", where),
        "name": name_field(item, "name", where),
        "arguments": optional_text(item, "arguments", where) or "{}",
    }


def _output(item: Mapping[str, Any], where: str) -> Item:
    return {
        "id": _id(item, "fco"),
        "type": "function_call_output",
        "status": _status(item),
        "call_id": name_field(item, "call_id", where),
        "output": "\n".join(_texts_if_any(item.get("output"), f"{where}.output")),
    }


def _custom_call(item: Mapping[str, Any], where: str) -> Item:
    return {
        "id": _id(item, "ctc"),
        "type": "custom_tool_call",
        "call_id": name_field(item, "call_id", where),
        "name": name_field(item, "name", where),
        "input": text_field(item, "input", where),
    }


def _custom_output(item: Mapping[str, Any], where: str) -> Item:
    return {
        "id": _id(item, "ctco"),
        "type": "custom_tool_call_output",
        "call_id": name_field(item, "call_id", where),
        "output": "\n".join(_texts_if_any(item.get("output"), f"{where}.output")),
    }


def _reasoning(item: Mapping[str, Any], where: str) -> Item:
    """Encrypted thinking was written elsewhere and cannot be read; thinking in the clear is kept."""
    return {
        "id": _id(item, "rs"),
        "type": "reasoning",
        "status": _status(item),
        "summary": _thoughts(item, "summary", "summary_text", where),
        "content": _thoughts(item, "content", "reasoning_text", where),
    }


def _approval(item: Mapping[str, Any], where: str) -> Item:
    return mcp.read_response(item, where, new_id("mcpa"))


_READERS: Mapping[str, Callable[[Mapping[str, Any], str], Item]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _custom_output,
    "reasoning": _reasoning,
    mcp.LIST: mcp.read_list,
    mcp.CALL: mcp.read_call,
    mcp.REQUEST: mcp.read_request,
    mcp.RESPONSE: _approval,
}


def _thoughts(item: Mapping[str, Any], field: str, kind: str, where: str) -> list[dict[str, Any]]:
    parts = item.get(field) or []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise invalid(f"{where}.{field}", "must be a list of parts")
    where = f"{where}.{field}"
    return [{"type": kind, "text": text_field(part, "text", f"{where}[{at}]")} for at, part in enumerate(parts)]


def _texts(content: Any, where: str) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise invalid(where, "must be a text or a list of parts")
    return [_part_text(part, f"{where}[{index}]") for index, part in enumerate(content)]


def _texts_if_any(content: Any, where: str) -> list[str]:
    return [] if content is None else _texts(content, where)


def _part_text(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("input_text", "output_text", "text"):
        return text_field(part, "text", where)
    if kind == "refusal":
        return text_field(part, "refusal", where)
    why = _BEYOND.get(kind) if isinstance(kind, str) else None
    raise _unsupported(f"{where}: {why or 'a part must be an input_text, an output_text or a refusal'}.", where)


def _id(item: Mapping[str, Any], prefix: str) -> str:
    value = item.get("id")
    return value if isinstance(value, str) and 0 < len(value) <= MAX_NAME else new_id(prefix)


def _status(item: Mapping[str, Any]) -> str:
    value = item.get("status")
    return value if isinstance(value, str) and value in _STATUSES else "completed"


def _unsupported(message: str, where: str) -> RequestError:
    return RequestError(message, param=where, code="unsupported_content")
