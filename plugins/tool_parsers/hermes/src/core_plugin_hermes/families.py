"""The Hermes format: `<think>` reasoning and `<tool_call>` calls."""

from __future__ import annotations

from core_plugin_parsers import Block, Family, JsonCalls, Prose, Written

HERMES = Family(
    (
        Block(("<think>",), Prose.REASONING, ("</think>",)),
        Block(("<tool_call>",), JsonCalls(closes=("</tool_call>",))),
    ),
    written=Written('<tool_call>\n{"name": "{name}", "arguments": ', "}\n</tool_call>", between="\n"),
)
