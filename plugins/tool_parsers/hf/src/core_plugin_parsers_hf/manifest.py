"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import ToolParserSpec

HF = ToolParserSpec(
    name="hf",
    impl="core_plugin_parsers_hf.forced:DescribedParser",
    api=1,
    summary="the format that the checkpoint describes in its tokenizer's response_template",
    priority=10,
    special_tokens=True,
    response_template=True,
)
BEAM = HF.replace(name="beam", priority=0)
RESPONSE_TEMPLATE = BEAM.replace(name="response_template")
