"""Output items of MCP servers while they are made."""

from __future__ import annotations

from typing import Any

from core.api.tool_servers import ToolResult, ToolServerError
from core_plugin_openai.responses.items import Item, new_id
from core_plugin_openai.responses.mcp.items import CALL, LIST, REQUEST
from core_plugin_openai.responses.output import INCOMPLETE, Event, added_event, done_event


class ListItem:
    """The tools of one server."""

    def __init__(self, index: int, label: str) -> None:
        self.index = index
        self._item: Item = {"id": new_id("mcpl"), "type": LIST, "server_label": label, "tools": [], "error": None}

    def opened(self) -> list[Event]:
        """Return the events that announce it."""
        return [added_event(self.index, dict(self._item)), self._event("in_progress")]

    def listed(self, tools: list[Item]) -> list[Event]:
        """Return the events of the server's answer."""
        return [self._event("completed"), done_event(self.index, {**self._item, "tools": tools})]

    def failed(self, why: str) -> list[Event]:
        """Return the events of a server that gave none."""
        return [self._event("failed"), done_event(self.index, {**self._item, "error": why})]

    def _event(self, what: str) -> Event:
        place = {"item_id": self._item["id"], "output_index": self.index}
        return {"type": f"response.mcp_list_tools.{what}", **place}


class McpCallItem:
    """A call that the server makes.

    Args:
        call_id: The call's id for the chat template.
        approval: Id of the request that was approved.

    Attributes:
        closed: Its last event has been made.
    """

    def __init__(self, index: int, label: str, name: str, call_id: str, approval: str | None = None) -> None:
        self.index, self.label, self.name = index, label, name
        self.closed = False
        self._text: list[str] = []
        self._item: Item = {
            "id": f"{new_id('mcp')}_{call_id}",
            "type": CALL,
            "server_label": label,
            "name": name,
            "approval_request_id": approval,
        }

    @property
    def arguments(self) -> str:
        """Text of the arguments that the model has written so far."""
        return "".join(self._text)

    def opened(self) -> list[Event]:
        """Return the events that announce it."""
        return [added_event(self.index, self._whole("in_progress")), self._event("mcp_call.in_progress")]

    def grown(self, text: str) -> list[Event]:
        """Add to the arguments."""
        self._text.append(text)
        return [self._event("mcp_call_arguments.delta", delta=text)]

    def ended(self, status: str) -> list[Event]:
        """Return the events of arguments that are complete, or have been cut off; then nothing is called."""
        events = [self._event("mcp_call_arguments.done", arguments=self.arguments)]
        return [*events, *self.cut()] if status == INCOMPLETE else events

    def cut(self) -> list[Event]:
        """Return the last event of a call that was not carried out."""
        self.closed = True
        return [done_event(self.index, self._whole(INCOMPLETE))]

    def returned(self, result: ToolResult) -> list[Event]:
        """Return the events of a call that its tool answered."""
        if not result.failed:
            return self._over("completed", output=result.text)
        content = [{"type": "text", "text": result.text}]
        return self._over("failed", error={"type": "mcp_tool_execution_error", "content": content})

    def broken(self, error: ToolServerError) -> list[Event]:
        """Return the events of a call that its server did not take."""
        kind = "http_error" if error.kind == "http" else "mcp_protocol_error"
        return self._over("failed", error={"type": kind, "code": error.code, "message": error.message})

    def _over(self, status: str, **what: Any) -> list[Event]:
        self.closed = True
        return [self._event(f"mcp_call.{status}"), done_event(self.index, {**self._whole(status), **what})]

    def _whole(self, status: str) -> Item:
        return {**self._item, "status": status, "arguments": self.arguments, "output": None, "error": None}

    def _event(self, what: str, **more: Any) -> Event:
        return {"type": f"response.{what}", "item_id": self._item["id"], "output_index": self.index, **more}


class ApprovalItem:
    """A call that waits for a human; it is shown when its arguments are complete."""

    def __init__(self, index: int, label: str, name: str, call_id: str) -> None:
        self.index = index
        self._text: list[str] = []
        self._item: Item = {"id": f"{new_id('mcpr')}_{call_id}", "type": REQUEST, "server_label": label, "name": name}

    def opened(self) -> list[Event]:
        """Return nothing: there is no event for a request that grows."""
        return []

    def grown(self, text: str) -> list[Event]:
        """Add to the arguments."""
        self._text.append(text)
        return []

    def ended(self, status: str) -> list[Event]:
        """Return the events of the whole request; nobody is asked about one that was cut off."""
        if status == INCOMPLETE:
            return []
        item = {**self._item, "arguments": "".join(self._text)}
        return [added_event(self.index, item), done_event(self.index, item)]
