"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import ToolParserSpec

HERMES = ToolParserSpec(
    name="hermes",
    impl="core_plugin_hermes.families:HERMES",
    api=1,
    summary="Hermes, Qwen2.5 and Qwen3: JSON calls between <tool_call> tags, reasoning between <think> tags",
    markers=("<tool_call>",),
)
