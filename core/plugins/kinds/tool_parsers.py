"""The kind `core.tool_parsers`: tool calls and reasoning in text."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

TOOL_PARSER = Kind(
    group="core.tool_parsers",
    label="tool parser",
    summary="tool calls and reasoning in text",
    descriptor="core.api.descriptors:ToolParserSpec",
    tier="stable",
    option="tool_parser",
    help="Tool-call parser; none by default. `auto` is what the checkpoint says.",
    also=("reasoning_parser",),
    contracts={
        "impl": Contract(
            "core.api.parsers:OutputParser",
            optional=("core.api.parsers:KnowsThinking", "core.api.parsers:EnforcesCalls"),
        )
    },
    torch_free=("impl",),
    checks=("parsers",),
)
