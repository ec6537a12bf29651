"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import OptionSection

TOOLS = OptionSection(
    name="tools",
    impl="core_plugin_tool_servers.options:ToolOptions",
    api=1,
    summary="Tools of remote servers, which the server calls itself",
    needs={"core.tool_servers": ("mcp_server", "allow_mcp_url")},
)
