"""Options of tool servers: flags, variables and keys of files."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from core.api import OptionMarks


class ToolOptions(BaseModel):
    """Tools of MCP servers, which the server calls itself while it answers `/v1/responses`."""

    mcp_server: list[str] = Field([], description="MCP servers that requests may name: LABEL=URL.")
    mcp_headers: Annotated[dict[str, dict[str, Any]], OptionMarks(secret=True)] = Field(
        {}, description="Headers for these servers: label -> name -> value."
    )
    allow_mcp_url: list[str] = Field(
        [], description="Addresses that requests may bring: https://HOST[:PORT][/PATH], https://*.DOMAIN."
    )
    mcp_timeout: float = Field(60.0, gt=0, le=3600, description="Seconds that a tool may take.")
    mcp_result_chars: int = Field(32768, ge=256, description="Characters of a tool's result that the model reads.")
    mcp_rounds: int = Field(16, ge=1, le=256, description="How often the model may call tools in one answer.")
