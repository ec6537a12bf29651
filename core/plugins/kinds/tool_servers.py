"""The kind `core.tool_servers`: protocols of servers whose tools core calls."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

TOOL_SERVER = Kind(
    group="core.tool_servers",
    label="tool-server client",
    summary="protocols of servers whose tools core calls",
    descriptor="core.api.descriptors:ToolServerSpec",
    option="tool_client",
    help="Who speaks to tool servers, where some are allowed; auto: the one installed; none.",
    contracts={"impl": Contract("core.api.tool_servers:ToolServerClient")},
    torch_free=("impl",),
    driver="core.routes",
    checks=("tool_servers",),
)
