"""Items of MCP servers in a request's input, and what they say to the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from core.api.bodies import invalid, name_field, optional_text
from core.api.errors import RequestError

Item = dict[str, Any]

LIST, CALL, REQUEST, RESPONSE = "mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response"
_MAX_TOOLS = 512
_STATUSES = ("in_progress", "completed", "incomplete", "calling", "failed")


def read_list(item: Mapping[str, Any], where: str) -> Item:
    """Check a list of tools. Raises `RequestError` 400."""
    tools = item.get("tools")
    if not isinstance(tools, list) or len(tools) > _MAX_TOOLS:
        raise invalid(f"{where}.tools", f"must be a list of at most {_MAX_TOOLS} tools")
    return {
        "id": name_field(item, "id", where),
        "type": LIST,
        "server_label": name_field(item, "server_label", where),
        "tools": [_tool(tool, f"{where}.tools[{index}]") for index, tool in enumerate(tools)],
        "error": optional_text(item, "error", where),
    }


def read_call(item: Mapping[str, Any], where: str) -> Item:
    """Check a call that was made. Raises `RequestError` 400."""
    error = item.get("error")
    if not isinstance(error, dict | str | None):
        raise invalid(f"{where}.error", "must be an object")
    status = item.get("status")
    return {
        "id": name_field(item, "id", where),
        "type": CALL,
        "status": status if status in _STATUSES else "completed",
        "server_label": name_field(item, "server_label", where),
        "name": name_field(item, "name", where),
        "arguments": optional_text(item, "arguments", where) or "",
        "output": optional_text(item, "output", where),
        "error": error,
        "approval_request_id": optional_text(item, "approval_request_id", where),
    }


def read_request(item: Mapping[str, Any], where: str) -> Item:
    """Check a call that waits for approval. Raises `RequestError` 400."""
    fields = {name: name_field(item, name, where) for name in ("id", "server_label", "name")}
    return {**fields, "type": REQUEST, "arguments": optional_text(item, "arguments", where) or ""}


def read_response(item: Mapping[str, Any], where: str, fresh: str) -> Item:
    """Check an approval or its refusal. Raises `RequestError` 400.

    Args:
        fresh: Its id, where it brings none.
    """
    if not isinstance(item.get("approve"), bool):
        raise invalid(f"{where}.approve", "must be true or false")
    return {
        "id": optional_text(item, "id", where) or fresh,
        "type": RESPONSE,
        "approval_request_id": name_field(item, "approval_request_id", where),
        "approve": item["approve"],
        "reason": optional_text(item, "reason", where),
    }


def check_approvals(items: Iterable[Item], labels: Iterable[str]) -> None:
    """Refuse approvals of what nobody asked for, or of servers that this request does not name.

    Raises:
        RequestError: 400.
    """
    items, known = list(items), set(labels)
    requests = {item["id"]: item for item in items if item["type"] == REQUEST}
    for item in items:
        if item["type"] == RESPONSE:
            asked = requests.get(item["approval_request_id"])
            if asked is None:
                message = f"input: there is no approval request '{item['approval_request_id'][:100]}'."
                raise RequestError(message, param="input", code="unknown_approval_request")
    for item in approved(items):
        if item["server_label"] not in known:
            message = f"tools: a call of MCP server '{item['server_label'][:64]}' was approved; name that server."
            raise RequestError(message, param="tools")


def approved(items: Iterable[Item]) -> list[Item]:
    """Return the requests that were approved and have not been called yet.

    The first answer to a request counts, and the first request of an id: what was refused is not approved later, and
    nobody agreed to what another item of that id would call.
    """
    items = list(items)
    called = {item["approval_request_id"] for item in items if item["type"] == CALL}
    answers: dict[str, bool] = {}
    requests: dict[str, Item] = {}
    for item in items:
        if item["type"] == RESPONSE:
            answers.setdefault(item["approval_request_id"], item["approve"])
        elif item["type"] == REQUEST:
            requests.setdefault(item["id"], item)
    return [item for name, item in requests.items() if answers.get(name) and name not in called]


def said_of(call: Mapping[str, Any]) -> str:
    """Return what the model reads as the result of a call."""
    error = call["error"]
    if error is None:
        return call["output"] if call["output"] is not None else "The call was not carried out."
    if isinstance(error, str):
        return f"Error: {error}"
    content = error.get("content")
    texts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    message = error.get("message")
    return "Error: " + (message if isinstance(message, str) else "\n".join(text for text in texts if text))


def call_id_of(item: Mapping[str, Any]) -> str:
    """Return the id that the call has for the chat template, which the item's own id ends with."""
    head, _, tail = str(item["id"]).partition("_")
    unique, _, call_id = tail.partition("_")
    return call_id if head in ("mcp", "mcpr") and len(unique) == 32 and call_id else str(item["id"])


def _tool(tool: Any, where: str) -> Item:
    if not isinstance(tool, dict) or not isinstance(tool.get("input_schema"), dict):
        raise invalid(where, "must be a tool with its input_schema")
    annotations = tool.get("annotations")
    if not isinstance(annotations, dict | None):
        raise invalid(f"{where}.annotations", "must be an object")
    return {
        "name": name_field(tool, "name", where),
        "description": optional_text(tool, "description", where),
        "input_schema": tool["input_schema"],
        "annotations": annotations,
    }
