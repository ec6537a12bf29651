"""From items to the messages of a chat template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from core_plugin_openai.responses.custom import arguments_of
from core_plugin_openai.responses.items import Item
from core_plugin_openai.responses.mcp import items as mcp
from core_plugin_openai.responses.mcp.offers import Names, function_name

Message = dict[str, Any]

_SILENT = frozenset({mcp.LIST, mcp.REQUEST})
"""Kinds of items that the model does not see; it hears what became of a request."""

_CALLS = frozenset({"function_call", "custom_tool_call", mcp.CALL, mcp.RESPONSE})
"""Kinds of items that belong to one turn of calls; results come behind it."""

_SYSTEM_ROLES = ("system", "developer")


def to_messages(instructions: str | None, items: Iterable[Item], names: Names | None = None) -> list[Message]:
    """Return the conversation, in the form that clients of chat completions send.

    What the assistant did in one turn (thinking, text, calls) is several items but one message. Instructions and the
    system messages right behind them are one message too: many templates read only a first one.

    Args:
        names: What tools of MCP servers are called for the model.
    """
    items = list(items)
    builder = _Builder(names or {}, {item["id"]: item for item in items if item["type"] == mcp.REQUEST})
    if instructions is not None:
        builder.say("system", instructions)
    for item in items:
        builder.add(item)
    return builder.finish()


class _Builder:
    def __init__(self, functions: Names, requests: Mapping[str, Item]) -> None:
        self._messages: list[Message] = []
        self._names: dict[str, str] = {}
        self._functions, self._requests = functions, requests
        self._results: list[Message] = []  # of calls that the server made, which follow all calls of their turn

    def add(self, item: Item) -> None:
        kind = item["type"]
        if kind in _SILENT:
            return
        if kind not in _CALLS:
            self._flush()
        if kind == mcp.CALL:
            self._called(item, mcp.said_of(item))
        elif kind == mcp.RESPONSE:
            self._answered(item)
        elif kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._think(item)
        elif kind == "function_call":
            self._call(item)
        elif kind == "custom_tool_call":
            self._call({**item, "arguments": arguments_of(item["input"])})
        else:
            self._result(item)

    def say(self, role: str, text: str) -> None:
        if role == "system" and len(self._messages) == 1 and self._messages[0]["role"] == "system":
            self._messages[0]["content"] += f"\n\n{text}"
        else:
            self._messages.append({"role": role, "content": text})

    def finish(self) -> list[Message]:
        self._flush()
        for message in self._messages:
            message.setdefault("content", "")
        return self._messages

    def _message(self, item: Item) -> None:
        text = "\n".join(part["text"] for part in item["content"])
        if item["role"] == "assistant":
            self._turn("content")["content"] = text
        else:
            self.say("system" if item["role"] in _SYSTEM_ROLES else item["role"], text)

    def _think(self, item: Item) -> None:
        text = "".join(part["text"] for part in item["content"]) or "\n".join(part["text"] for part in item["summary"])
        if text:
            turn = self._turn("content", "tool_calls")
            turn["reasoning"] = turn.get("reasoning", "") + text

    def _call(self, item: Item) -> None:
        self._names[item["call_id"]] = item["name"]
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        self._turn().setdefault("tool_calls", []).append(call)

    def _answered(self, item: Item) -> None:
        """Tell the model that a human refused; what was approved is a call of its own, once it has been made."""
        request = self._requests.get(item["approval_request_id"])
        if request is not None and not item["approve"]:
            reason = f" ({item['reason']})" if item["reason"] else ""
            self._called(request, f"The user refused this call{reason}.")

    def _called(self, item: Item, said: str) -> None:
        label, name, call_id = item["server_label"], item["name"], mcp.call_id_of(item)
        function = self._functions.get((label, name)) or function_name(label, name)
        self._call({"call_id": call_id, "name": function, "arguments": item["arguments"]})
        self._results.append({"role": "tool", "tool_call_id": call_id, "content": said, "name": function})

    def _flush(self) -> None:
        self._messages += self._results
        self._results = []

    def _result(self, item: Item) -> None:
        message = {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
        name = self._names.get(item["call_id"])
        self._messages.append(message if name is None else {**message, "name": name})

    def _turn(self, *ends: str) -> Message:
        """Return the assistant's last message; a new one if it already has a field of `ends`."""
        last = self._messages[-1] if self._messages else None
        if last is None or last["role"] != "assistant" or any(name in last for name in ends):
            last = {"role": "assistant"}
            self._messages.append(last)
        return last
