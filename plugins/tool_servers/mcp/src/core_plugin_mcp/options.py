"""Options of the MCP client: `--opt mcp.KEY=VALUE`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class McpOptions(BaseModel):
    """Options of the MCP client."""

    model_config = ConfigDict(extra="forbid")

    connect_seconds: float = Field(default=10.0, gt=0, le=600, description="Seconds that connecting may take.")
    max_answer_bytes: int = Field(default=8 * 2**20, ge=1024, description="Longest HTTP answer of a server.")
    sse_suffix: str = Field(
        default="/sse", description="Addresses whose path ends so are spoken to by the older transport."
    )
    proxy: str | None = Field(
        default=None, description="Proxy for every server; those of the environment are not used."
    )
