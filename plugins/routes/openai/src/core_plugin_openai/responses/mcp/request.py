"""Tools of type `mcp`: which server, which of its tools, and which of them a human must agree to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_plugin_tool_servers.servers import RemoteServers

from core.api.bodies import invalid, optional_text
from core.api.errors import RequestError
from core.api.tool_servers import ToolEndpoint as Endpoint

Item = dict[str, Any]

MAX_SERVERS = 16
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_MAX_NAMES = 512
_ABSENT = "tools of MCP servers are not called from here; start the server with --mcp-server or --allow-mcp-url"
_ELSEWHERE = ("connector_id", "tunnel_id")


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Some of a server's tools.

    Attributes:
        names: These; None: whatever they are called.
        read_only: Those that say so, or those that do not; None: both.
    """

    names: frozenset[str] | None = None
    read_only: bool | None = None

    def holds(self, tool: Mapping[str, Any]) -> bool:
        """Say whether a listed tool is one of them."""
        if self.names is not None and tool["name"] not in self.names:
            return False
        return self.read_only is None or self.read_only == ((tool["annotations"] or {}).get("readOnlyHint") is True)


@dataclass(frozen=True, slots=True)
class Approval:
    """Which tools a human must agree to.

    Attributes:
        always: These.
        never: All but these, where no tool is named by `always`.
    """

    always: ToolFilter | None = None
    never: ToolFilter | None = None

    def needed(self, tool: Mapping[str, Any]) -> bool:
        """Say whether a listed tool waits for approval."""
        if self.always is not None and self.always.holds(tool):
            return True
        return not self.never.holds(tool) if self.never is not None else self.always is None


@dataclass(frozen=True, slots=True)
class McpServer:
    """One tool of type `mcp`.

    Attributes:
        listed: As the answer repeats it, without secrets.
        allowed: The tools that the model sees.
    """

    label: str
    endpoint: Endpoint
    listed: Item
    allowed: ToolFilter
    approval: Approval


def read_server(tool: Mapping[str, Any], where: str, servers: RemoteServers | None) -> McpServer:
    """Check a tool of type `mcp`. Raises `RequestError` 400 naming the field at fault."""
    if servers is None:
        raise RequestError(f"{where}: {_ABSENT}.", param=f"{where}.type", code="unsupported_tool")
    for name in _ELSEWHERE:
        if tool.get(name) is not None:
            message = f"{where}.{name}: only MCP servers are spoken to; give their server_url."
            raise RequestError(message, param=f"{where}.{name}", code="unsupported_tool")
    label = tool.get("server_label")
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise invalid(
            f"{where}.server_label", "must begin with a letter and have at most 64 letters, digits, '_' and '-'"
        )
    url, description = optional_text(tool, "server_url", where), optional_text(tool, "server_description", where)
    headers = _headers(tool, where, servers)
    try:
        endpoint = servers.endpoint(label, url, headers)
    except ValueError as error:
        field = f"{where}.server_label" if url is None else f"{where}.server_url"
        raise RequestError(f"{where}: {error}.", param=field, code="mcp_server_refused") from None
    allowed, approval = tool.get("allowed_tools"), tool.get("require_approval")
    listed = {
        "type": "mcp",
        "server_label": label,
        "server_url": endpoint.shown,
        "server_description": description,
        "allowed_tools": allowed,
        "require_approval": "always" if approval is None else approval,
        "headers": None,
    }
    found = _filter(allowed, f"{where}.allowed_tools") or ToolFilter()
    return McpServer(label, endpoint, listed, found, _approval(approval, f"{where}.require_approval"))


def check_labels(servers: Sequence[McpServer]) -> None:
    """Refuse labels that stand for two servers. Raises `RequestError` 400."""
    labels = [server.label for server in servers]
    if len(labels) > MAX_SERVERS:
        raise invalid("tools", f"has {len(labels)} MCP servers; at most {MAX_SERVERS}")
    for label in labels:
        if labels.count(label) > 1:
            raise RequestError(f"tools: two MCP servers have the server_label '{label}'.", param="tools")


def _headers(tool: Mapping[str, Any], where: str, servers: RemoteServers) -> dict[str, str]:
    given, token = tool.get("headers"), optional_text(tool, "authorization", where)
    try:
        headers = servers.check_headers(given or {})
    except ValueError as error:
        raise invalid(f"{where}.headers", str(error)) from None
    if token is None:
        return headers
    if any(name.lower() == "authorization" for name in headers):
        message = f"{where}: authorization and a header of that name exclude each other."
        raise RequestError(message, param=f"{where}.authorization")
    try:
        return {**headers, **servers.check_headers({"Authorization": f"Bearer {token}"})}
    except ValueError:
        raise invalid(f"{where}.authorization", "must be a token on one line") from None


def _filter(given: Any, where: str) -> ToolFilter | None:
    """Read a list of names, or a filter object."""
    if given is None:
        return None
    names = given.get("tool_names") if isinstance(given, Mapping) else given
    read_only = given.get("read_only") if isinstance(given, Mapping) else None
    if names is not None and (
        not isinstance(names, list) or len(names) > _MAX_NAMES or not all(isinstance(name, str) for name in names)
    ):
        raise invalid(where, f"must be a list of at most {_MAX_NAMES} names, or a filter")
    if not isinstance(read_only, bool | None):
        raise invalid(f"{where}.read_only", "must be true or false")
    return ToolFilter(None if names is None else frozenset(names), read_only)


def _approval(given: Any, where: str) -> Approval:
    if given is None or given == "always":
        return Approval()
    if given == "never":
        return Approval(never=ToolFilter())
    if not isinstance(given, Mapping):
        raise invalid(where, "must be 'always', 'never', or a filter for each")
    always, never = (_filter(given.get(name), f"{where}.{name}") for name in ("always", "never"))
    return Approval(always, never)
