"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import ToolServerSpec

MCP = ToolServerSpec(
    name="mcp",
    impl="core_plugin_mcp.client:McpClient",
    api=1,
    summary="Model Context Protocol over streamable HTTP or server-sent events",
    options="core_plugin_mcp.options:McpOptions",
)
