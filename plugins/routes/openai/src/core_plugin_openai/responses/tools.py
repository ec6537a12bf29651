"""Tools and the choice among them: functions are the caller's to run, tools of MCP servers this server's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core_plugin_tool_servers.servers import RemoteServers

from core.api.bodies import invalid, name_field, optional_text
from core.api.errors import RequestError
from core.api.serving import AUTO, ToolChoice
from core_plugin_openai.responses import custom
from core_plugin_openai.responses.items import new_id
from core_plugin_openai.responses.mcp.offers import Offer, make_offers
from core_plugin_openai.responses.mcp.request import McpServer, check_labels, read_server
from core_plugin_openai.responses.output import CallItem, OpenCall

Tool = dict[str, Any]

_BUILT_IN = "functions, custom tools and MCP servers are available; built-in tools run on OpenAI's servers"


@dataclass(frozen=True, slots=True)
class Tools:
    """Tools that may be called.

    Attributes:
        listed: The request's tools, as the answer repeats them.
        offered: Those that the model sees, in the form of chat completions.
        choice: Whether one must be called.
        given: The request's choice, as the answer repeats it.
        functions: The caller's own, custom tools among them, of those that are offered and those that are not.
        servers: MCP servers, whose tools are not known before they are asked.
        offers: Tools of MCP servers, once they are known.
    """

    listed: tuple[Tool, ...] = ()
    offered: tuple[Tool, ...] = ()
    choice: ToolChoice = AUTO
    given: str | dict[str, Any] = "auto"
    functions: tuple[Tool, ...] = ()
    servers: tuple[McpServer, ...] = ()
    offers: tuple[Offer, ...] = ()

    def open_call(self, index: int, name: str, call_id: str) -> OpenCall:
        """Return the item of a call that is the caller's to make."""
        if any(tool["type"] == custom.KIND for tool in self.functions if tool["name"] == name):
            return custom.CustomCallItem(index, name, call_id, new_id("ctc"))
        return CallItem(index, name, call_id)

    def with_lists(self, lists: Mapping[str, Sequence[Tool]]) -> Tools:
        """Return the tools with those of the servers.

        Args:
            lists: The servers' tools, by label.

        Raises:
            RequestError: 400, the choice names a tool that there is not.
        """
        offers = tuple(make_offers(self.servers, lists, [tool["name"] for tool in self.functions]))
        allowed, choice = _choice(self.given, [tool["name"] for tool in self.functions], offers)
        functions = (_chat_form(tool) for tool in self.functions if tool["name"] in allowed)
        kept = tuple(offer for offer in offers if offer.function in allowed)
        return replace(self, offered=(*functions, *(offer.chat_form() for offer in kept)), choice=choice, offers=kept)


def choose_tools(
    tools: Sequence[Mapping[str, Any]] | None,
    choice: str | Mapping[str, Any] | None,
    remote: RemoteServers | None = None,
) -> Tools:
    """Check tools and choice. With MCP servers among them, `offered` and `choice` are settled by `Tools.with_lists`.

    Args:
        remote: The servers that may be spoken to.

    Raises:
        RequestError: 400 naming the field at fault.
    """
    listed, functions, servers = [], [], []
    for index, tool in enumerate(tools or ()):
        if tool.get("type") == "mcp":
            servers.append(read_server(tool, f"tools[{index}]", remote))
            listed.append(servers[-1].listed)
        else:
            functions.append(_function(tool, f"tools[{index}]"))
            listed.append(functions[-1])
    check_labels(servers)
    given = dict(choice) if isinstance(choice, Mapping) else choice or "auto"
    found = Tools(tuple(listed), given=given, functions=tuple(functions), servers=tuple(servers))
    if servers:
        _check_choice(given, found)
        return found
    return found.with_lists({})


def _check_choice(given: str | Mapping[str, Any], tools: Tools) -> None:
    """Refuse what can be seen to be wrong before any server is asked. Raises `RequestError` 400."""
    entries = given.get("tools") if isinstance(given, Mapping) and given.get("type") == "allowed_tools" else [given]
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("type") == "mcp":
            if entry.get("server_label") not in [server.label for server in tools.servers]:
                param = "tool_choice.server_label"
                raise invalid(param, "must be the label of one of the MCP servers")
            return
    _choice(given, [tool["name"] for tool in tools.functions], ())


def _function(tool: Mapping[str, Any], where: str) -> Tool:
    kind = tool.get("type")
    if kind not in ("function", custom.KIND):
        raise _refusal(kind, where)
    name_field(tool, "name", where)
    optional_text(tool, "description", where)
    parameters = tool.get("parameters")
    if kind == custom.KIND:
        return {
            **{key: tool.get(key) for key in ("type", "name", "description")},
            "format": custom.read_format(tool, where),
        }
    if parameters is not None and not isinstance(parameters, dict):
        raise invalid(f"{where}.parameters", "must be a JSON schema")
    if not isinstance(tool.get("strict"), bool | None):
        raise invalid(f"{where}.strict", "must be true or false")
    return {key: tool.get(key) for key in ("type", "name", "description", "parameters", "strict")}


def _refusal(kind: Any, where: str) -> RequestError:
    if not isinstance(kind, str):
        return invalid(f"{where}.type", "must name a kind of tool")
    message = f"{where}: {_BUILT_IN} (type '{kind[:64]}')."
    return RequestError(message, param=f"{where}.type", code="unsupported_tool")


def _chat_form(tool: Tool) -> Tool:
    if tool["type"] == custom.KIND:
        return custom.chat_form(tool)
    function = {key: tool[key] for key in ("name", "description", "parameters", "strict") if tool[key] is not None}
    return {"type": "function", "function": function}


def _choice(
    choice: str | Mapping[str, Any], names: Sequence[str], offers: Sequence[Offer]
) -> tuple[Sequence[str], ToolChoice]:
    """Return the names of functions that may be called, those of `offers` among them, and the choice among them."""
    kind = choice.get("type") if isinstance(choice, Mapping) else choice
    every = [*names, *(offer.function for offer in offers)]
    if kind is None or kind == "auto":
        return every, AUTO
    if kind == "none":
        return every, ToolChoice("none")
    if kind == "required":
        return every, ToolChoice("required")
    if isinstance(choice, Mapping) and kind in ("function", custom.KIND):
        return every, ToolChoice("function", _known(choice.get("name"), names, "tool_choice.name"))
    if isinstance(choice, Mapping) and kind == "mcp":
        found = _remote(choice, offers, "tool_choice")
        return (
            (found, ToolChoice("required")) if choice.get("name") is None else (every, ToolChoice("function", *found))
        )
    if isinstance(choice, Mapping) and kind == "allowed_tools":
        return _allowed(choice, names, offers)
    raise invalid("tool_choice", "must be 'none', 'auto', 'required', a function, an MCP server, or allowed_tools")


def _allowed(
    choice: Mapping[str, Any], names: Sequence[str], offers: Sequence[Offer]
) -> tuple[Sequence[str], ToolChoice]:
    mode, tools = choice.get("mode"), choice.get("tools")
    if mode not in ("auto", "required"):
        raise invalid("tool_choice.mode", "must be 'auto' or 'required'")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise invalid("tool_choice.tools", "must be a list of functions")
    found: list[str] = []
    for index, tool in enumerate(tools):
        where = f"tool_choice.tools[{index}]"
        if tool.get("type") == "mcp":
            found += _remote(tool, offers, where)
        else:
            found.append(_known(tool.get("name"), names, f"{where}.name"))
    return found, ToolChoice("required") if mode == "required" else AUTO


def _remote(entry: Mapping[str, Any], offers: Sequence[Offer], where: str) -> list[str]:
    """Return the functions of one server, or the one tool of it that is named."""
    label, name = entry.get("server_label"), entry.get("name")
    found = [offer for offer in offers if offer.label == label and name in (None, offer.tool["name"])]
    if not found:
        raise invalid(where, "must name an MCP server of the tools, and a tool that it lists and allowed_tools has")
    return [offer.function for offer in found]


def _known(name: Any, names: Sequence[str], where: str) -> str:
    if not isinstance(name, str) or name not in names:
        raise invalid(where, "must be the name of one of the tools")
    return name
