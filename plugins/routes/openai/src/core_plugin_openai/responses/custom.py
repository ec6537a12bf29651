"""Custom tools: calls whose input is a text. The model sees a function with one argument."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import orjson

from core.api.bodies import invalid
from core.api.errors import RequestError
from core_plugin_openai.responses.output import INCOMPLETE, Event, added_event, done_event

Item = dict[str, Any]

KIND, ARGUMENT = "custom", "input"
_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {ARGUMENT: {"type": "string"}},
    "required": [ARGUMENT],
    "additionalProperties": False,
}
_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
# A piece ends in front of what the next one may change: an escape that is not whole, or half a surrogate pair.
_HEX = "[0-9a-fA-F]"
_UNIT = rf"(?:[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|(?![dD][89a-fA-F]){_HEX}{{4}})"
_WHOLE = re.compile(rf'(?:[^"\\]|\\(?:["\\/bfnrt]|u{_UNIT}))*')


def read_format(tool: Mapping[str, Any], where: str) -> Item:
    """Return the format of a tool's input. Raises `RequestError` 400."""
    given = tool.get("format")
    kind = given.get("type") if isinstance(given, Mapping) else None
    if given is None or kind == "text":
        return {"type": "text"}
    if kind == "grammar":
        message = f"{where}.format: grammars are not enforced inside of calls; leave format out, or offer a function."
        raise RequestError(message, param=f"{where}.format", code="unsupported_tool")
    raise invalid(f"{where}.format", "must be a text or a grammar")


def chat_form(tool: Mapping[str, Any]) -> Item:
    """Return a tool as chat completions describe functions."""
    described = {"description": tool["description"]} if tool["description"] else {}
    function = {"name": tool["name"], **described, "parameters": dict(_PARAMETERS), "strict": True}
    return {"type": "function", "function": function}


def arguments_of(text: str) -> str:
    """Return a call's input as the arguments of that function."""
    return orjson.dumps({ARGUMENT: text}).decode()


class CustomCallItem:
    """A call of one of the caller's custom tools."""

    def __init__(self, index: int, name: str, call_id: str, item_id: str) -> None:
        self.index = index
        self._item: Item = {"id": item_id, "type": "custom_tool_call", "call_id": call_id, "name": name}
        self._raw = ""
        self._begin: int | None = None  # of what has not been passed on
        self._said: list[str] = []

    def opened(self) -> list[Event]:
        """Return the event that announces it."""
        return [added_event(self.index, {**self._item, "input": ""})]

    def grown(self, text: str) -> list[Event]:
        """Add to the arguments and return the events of the input that they hold."""
        self._raw += text
        if self._begin is None and (head := _HEAD.match(self._raw)) is not None:
            self._begin = head.end()
        if self._begin is None:
            return []
        found = _WHOLE.match(self._raw, self._begin)
        piece, self._begin = ("", self._begin) if found is None else (found[0], found.end())
        return self._delta(_decoded(piece))

    def ended(self, status: str) -> list[Event]:
        """Return the events that complete it, whether its arguments are whole or have been cut off."""
        said = "".join(self._said)
        text = self._read(status)
        rest = self._delta(text[len(said) :]) if text.startswith(said) else []
        text = "".join(self._said)
        done = {"type": "response.custom_tool_call_input.done", **self._place(), "input": text}
        return [*rest, done, done_event(self.index, {**self._item, "input": text})]

    def _read(self, status: str) -> str:
        """Return the whole input: a model that writes no such object has written its input all the same."""
        try:
            value = json.loads(self._raw, strict=False)
        except ValueError:
            return "" if self._begin is not None and status == INCOMPLETE else self._raw
        text = value.get(ARGUMENT) if isinstance(value, dict) else None
        # Half a surrogate pair is valid JSON and no text.
        return text.encode("utf-8", "replace").decode() if isinstance(text, str) else self._raw

    def _delta(self, text: str) -> list[Event]:
        if not text:
            return []
        self._said.append(text)
        return [{"type": "response.custom_tool_call_input.delta", **self._place(), "delta": text}]

    def _place(self) -> Event:
        return {"item_id": self._item["id"], "output_index": self.index}


def _decoded(piece: str) -> str:
    """Return the text of the inside of a JSON string; control characters may stand in it as they are."""
    plain = piece.translate({code: f"\\u{code:04x}" for code in range(32)})
    text: str = orjson.loads(f'"{plain}"')
    return text
