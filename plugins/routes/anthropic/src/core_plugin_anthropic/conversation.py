"""From Anthropic's system text, turns and tools to the messages and tools of a chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.api import RequestError
from core.api.bodies import invalid, name_field, optional_text, text_field

ROLES = ("user", "assistant", "system")


def read_system(system: str | Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Return the system message, if there is one."""
    if system is None:
        return []
    text = system if isinstance(system, str) else _texts(system, "system")
    return [{"role": "system", "content": text}] if text else []


def read_turns(turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the turns as chat messages: calls and thinking inside the assistant's, a message per tool result.

    Raises:
        RequestError: Names the block at fault.
    """
    reader = TurnReader()
    for index, turn in enumerate(turns):
        reader.read(turn, f"messages[{index}]")
    return reader.messages


def read_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Return the tools in the form that chat templates know. Raises `RequestError` for tools that a server runs."""
    return [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools or ())]


class TurnReader:
    """Reads one turn after the other.

    Attributes:
        messages: What was read so far; turns of one role in a row are one message.
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._called: dict[str, str] = {}

    def read(self, turn: Mapping[str, Any], where: str) -> None:
        """Add a turn."""
        role, content = turn.get("role"), turn.get("content")
        if role not in ROLES:
            raise invalid(f"{where}.role", f"must be one of {', '.join(ROLES)}")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list):
            where = f"{where}.content"
            raise invalid(where, "must be a text or a list of blocks")
        if role == "assistant":
            self._assistant(content, f"{where}.content")
        elif role == "system":
            self.messages.append({"role": "system", "content": _texts(content, f"{where}.content")})
        else:
            self._user(content, f"{where}.content")

    def _user(self, blocks: Sequence[Any], where: str) -> None:
        if not blocks:
            raise invalid(where, "must not be empty")
        for index, block in enumerate(blocks):
            at = f"{where}[{index}]"
            if _kind(block, at) == "tool_result":
                self.messages.append(self._result(block, at))
            else:
                self._add_text("user", _text(block, at))

    def _assistant(self, blocks: Sequence[Any], where: str) -> None:
        message = self._latest("assistant")
        for index, block in enumerate(blocks):
            at = f"{where}[{index}]"
            kind = _kind(block, at)
            if kind == "tool_use":
                message.setdefault("tool_calls", []).append(self._call(block, at))
            elif kind == "thinking":
                message["reasoning"] = message.get("reasoning", "") + text_field(block, "thinking", at)
            elif kind != "redacted_thinking":  # of which nobody but its author can read anything
                message["content"] += _text(block, at)

    def _latest(self, role: str) -> dict[str, Any]:
        """Return the message that a turn of `role` goes on with."""
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": ""})
        return self.messages[-1]

    def _add_text(self, role: str, text: str) -> None:
        message = self._latest(role)
        message["content"] = f"{message['content']}\n{text}" if message["content"] else text

    def _call(self, block: Mapping[str, Any], where: str) -> dict[str, Any]:
        name, identifier = text_field(block, "name", where), text_field(block, "id", where)
        arguments = block.get("input")
        if not isinstance(arguments, dict):
            raise invalid(f"{where}.input", "must be an object")
        self._called[identifier] = name
        return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}

    def _result(self, block: Mapping[str, Any], where: str) -> dict[str, Any]:
        identifier = text_field(block, "tool_use_id", where)
        if identifier not in self._called:
            message = f"{where}.tool_use_id: no earlier tool_use block has the id '{identifier[:80]}'."
            raise RequestError(message, param=f"{where}.tool_use_id")
        content = block.get("content")
        text = content if isinstance(content, str) else _texts(content or (), f"{where}.content")
        if block.get("is_error") is True:
            text = f"Error: {text}"  # templates have no other way to say it
        return {"role": "tool", "tool_call_id": identifier, "name": self._called[identifier], "content": text}


def _tool(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    kind = tool.get("type")
    if kind not in (None, "custom"):
        message = (
            f"{where}.type: '{str(kind)[:64]}' is a tool that the provider runs; this server offers custom tools only."
        )
        raise RequestError(message, param=f"{where}.type", code="unsupported_parameter")
    name, schema = name_field(tool, "name", where), tool.get("input_schema")
    if not isinstance(schema, dict):
        raise invalid(f"{where}.input_schema", "must be an object")
    function: dict[str, Any] = {"name": name, "parameters": schema}
    if (description := optional_text(tool, "description", where)) is not None:
        function["description"] = description
    if tool.get("strict") is True:
        function["strict"] = True
    return {"type": "function", "function": function}


def _texts(blocks: Any, where: str) -> str:
    if not isinstance(blocks, (list, tuple)):
        raise invalid(where, "must be a text or a list of blocks")
    return "\n".join(_text(block, f"{where}[{index}]") for index, block in enumerate(blocks))


def _text(block: Any, where: str) -> str:
    """Return the text of a block that is nothing but text, whatever it is called."""
    kind = _kind(block, where)
    if kind == "text":
        return text_field(block, "text", where)
    if kind == "document":
        return _document(block, where)
    if kind == "search_result":
        head = [text_field(block, name, where) for name in ("title", "source")]
        return "\n".join([*head, _texts(block.get("content"), f"{where}.content")])
    raise _unread(f"'{kind[:64]}' blocks", where)


def _document(block: Mapping[str, Any], where: str) -> str:
    source: Any = block.get("source")
    kind = _kind(source, f"{where}.source")
    if kind == "text":
        text = text_field(source, "data", f"{where}.source")
    elif kind == "content":
        content = source.get("content")
        text = content if isinstance(content, str) else _texts(content, f"{where}.source.content")
    else:
        raise _unread(f"documents of type '{kind[:64]}'", f"{where}.source")
    head = [text_field(block, name, where) for name in ("title", "context") if block.get(name) is not None]
    return "\n".join([*head, text])


def _unread(what: str, where: str) -> RequestError:
    message = f"{where}: this model reads no {what} here."
    return RequestError(message, param=where, code="unsupported_content")


def _kind(block: Any, where: str) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise invalid(where, "must be a block with a type")
    return kind
