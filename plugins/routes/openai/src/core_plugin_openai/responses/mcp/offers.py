"""Tools of MCP servers as the functions that a model sees."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.api.tool_servers import RemoteTool
from core_plugin_openai.responses.mcp.items import LIST
from core_plugin_openai.responses.mcp.request import McpServer

Item = dict[str, Any]
Names = Mapping[tuple[str, str], str]
"""Label of a server and name of its tool -> name of the function."""

_OTHERS = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool that the model may call.

    Attributes:
        function: Its name for the model.
        tool: As the list has it.
        approval: A human must agree to each call.
    """

    function: str
    label: str
    tool: Item
    approval: bool

    def chat_form(self) -> Item:
        """Return it as chat completions describe functions."""
        described = {"description": self.tool["description"]} if self.tool["description"] else {}
        parameters = _parameters(self.tool["input_schema"])
        return {"type": "function", "function": {"name": self.function, **described, "parameters": parameters}}


def function_name(label: str, name: str) -> str:
    """Return what a tool is called for the model, as long as no other has that name."""
    return _OTHERS.sub("_", f"{label}__{name}")[:_MAX_NAME]


def make_offers(servers: Sequence[McpServer], lists: Mapping[str, Sequence[Item]], taken: Iterable[str]) -> list[Offer]:
    """Return the tools that the model may call.

    Args:
        lists: The servers' tools, by label.
        taken: Names of the client's own functions.
    """
    used, offers = set(taken), list[Offer]()
    numbers: Counter[str] = Counter()  # a server that lists one name in many spellings is not looked through each time
    for server in servers:
        for tool in lists.get(server.label, ()):
            if not server.allowed.holds(tool):
                continue
            base = function = function_name(server.label, tool["name"])
            while function in used:
                numbers[base] += 1
                end = f"_{numbers[base] + 1}"
                function = base[: _MAX_NAME - len(end)] + end
            used.add(function)
            offers.append(Offer(function, server.label, tool, server.approval.needed(tool)))
    return offers


def names_of(offers: Iterable[Offer]) -> Names:
    """Return what the tools are called for the model."""
    return {(offer.label, offer.tool["name"]): offer.function for offer in offers}


def held_lists(servers: Sequence[McpServer], items: Iterable[Item]) -> dict[str, list[Item]]:
    """Return the tools of the servers whose lists the conversation holds already.

    A list was made for the tools that were allowed then: one that lacks a name that is allowed now is of no use.
    """
    found = {item["server_label"]: item["tools"] for item in items if item["type"] == LIST and item["error"] is None}
    lists = {}
    for server in servers:
        tools = found.get(server.label)
        names = {tool["name"] for tool in tools or ()}
        if tools is not None and (server.allowed.names is None or server.allowed.names <= names):
            lists[server.label] = tools
    return lists


def listed_tools(server: McpServer, tools: Iterable[RemoteTool]) -> list[Item]:
    """Return the allowed ones of a server's tools, as its list shows them."""
    listed = [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": dict(tool.input_schema),
            "annotations": None if tool.annotations is None else dict(tool.annotations),
        }
        for tool in tools
    ]
    return [tool for tool in listed if server.allowed.holds(tool)]


def _parameters(schema: Mapping[str, Any]) -> Item:
    """Return the schema of a call's arguments, which always are an object; a server may have forgotten to say so."""
    kind, properties = schema.get("type", "object"), schema.get("properties")
    an_object = kind == "object" or (isinstance(kind, list) and "object" in kind)
    if not an_object or not isinstance(properties, dict | None):
        return {"type": "object"}
    return {"type": "object", **schema}
