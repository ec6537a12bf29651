"""Tools and the choice among them: functions are the caller's to run; nothing is run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.frontend.conversation import AUTO, ToolChoice
from core.server.errors import ApiError

Tool = dict[str, Any]

_MCP = "tools of MCP servers are not called from here; offer each as a function and call it yourself"
_CUSTOM = "tools with free-form input are not available; offer a function"
_BUILT_IN = "only functions are available; built-in tools run on OpenAI's servers"
_MAX_NAME = 256


@dataclass(frozen=True, slots=True)
class Tools:
    """What may be called.

    Attributes:
        listed: The request's tools, as the answer repeats them.
        offered: Those that the model sees, in the form of chat completions.
        choice: Whether one must be called.
        given: The request's choice, as the answer repeats it.
    """

    listed: tuple[Tool, ...] = ()
    offered: tuple[Tool, ...] = ()
    choice: ToolChoice = AUTO
    given: str | dict[str, Any] = "auto"


def choose_tools(tools: Sequence[Mapping[str, Any]] | None, choice: str | Mapping[str, Any] | None) -> Tools:
    """Check tools and choice. Raises `ApiError` 400 naming the field at fault."""
    listed = tuple(_function(tool, f"tools[{index}]") for index, tool in enumerate(tools or ()))
    allowed, chosen = _choice(choice, [tool["name"] for tool in listed])
    offered = tuple(_chat_form(tool) for tool in listed if tool["name"] in allowed)
    given = dict(choice) if isinstance(choice, Mapping) else choice or "auto"
    return Tools(listed, offered, chosen, given)


def _function(tool: Mapping[str, Any], where: str) -> Tool:
    kind = tool.get("type")
    if kind != "function":
        raise _refusal(kind, where)
    name, parameters = tool.get("name"), tool.get("parameters")
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        message = f"{where}.name must be a text of 1 to {_MAX_NAME} characters."
        raise ApiError(400, message, param=f"{where}.name")
    if parameters is not None and not isinstance(parameters, dict):
        raise ApiError(400, f"{where}.parameters must be a JSON schema.", param=f"{where}.parameters")
    if not isinstance(tool.get("description"), str | None):
        raise ApiError(400, f"{where}.description must be a text.", param=f"{where}.description")
    if not isinstance(tool.get("strict"), bool | None):
        raise ApiError(400, f"{where}.strict must be true or false.", param=f"{where}.strict")
    return {key: tool.get(key) for key in ("type", "name", "description", "parameters", "strict")}


def _refusal(kind: Any, where: str) -> ApiError:
    if not isinstance(kind, str):
        return ApiError(400, f"{where}.type must name a kind of tool.", param=f"{where}.type")
    why = {"mcp": _MCP, "custom": _CUSTOM}.get(kind, _BUILT_IN)
    message = f"{where}: {why} (type '{kind[:64]}')."
    return ApiError(400, message, param=f"{where}.type", code="unsupported_tool")


def _chat_form(tool: Tool) -> Tool:
    function = {key: tool[key] for key in ("name", "description", "parameters", "strict") if tool[key] is not None}
    return {"type": "function", "function": function}


def _choice(choice: str | Mapping[str, Any] | None, names: Sequence[str]) -> tuple[Sequence[str], ToolChoice]:
    """Return the names that may be called, and the choice among them."""
    kind = choice.get("type") if isinstance(choice, Mapping) else choice
    if kind is None or kind == "auto":
        return names, AUTO
    if kind == "none":
        return names, ToolChoice("none")
    if kind == "required":
        return names, ToolChoice("required")
    if isinstance(choice, Mapping) and kind == "function":
        return names, ToolChoice("function", _known(choice.get("name"), names, "tool_choice.name"))
    if isinstance(choice, Mapping) and kind == "allowed_tools":
        return _allowed(choice, names)
    message = "tool_choice must be 'none', 'auto', 'required', a function, or allowed_tools."
    raise ApiError(400, message, param="tool_choice")


def _allowed(choice: Mapping[str, Any], names: Sequence[str]) -> tuple[Sequence[str], ToolChoice]:
    mode, tools = choice.get("mode"), choice.get("tools")
    if mode not in ("auto", "required"):
        raise ApiError(400, "tool_choice.mode must be 'auto' or 'required'.", param="tool_choice.mode")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ApiError(400, "tool_choice.tools must be a list of functions.", param="tool_choice.tools")
    found = [_known(tool.get("name"), names, f"tool_choice.tools[{index}].name") for index, tool in enumerate(tools)]
    return found, ToolChoice("required") if mode == "required" else AUTO


def _known(name: Any, names: Sequence[str], where: str) -> str:
    if not isinstance(name, str) or name not in names:
        raise ApiError(400, f"{where} must be the name of one of the tools.", param=where)
    return name
