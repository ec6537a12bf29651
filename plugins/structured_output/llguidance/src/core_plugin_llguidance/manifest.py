"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import StructuredOutputSpec

LLGUIDANCE = StructuredOutputSpec(
    name="llguidance",
    impl="core_plugin_llguidance.backend:LLGuidance",
    api=1,
    summary="llguidance: masks computed step by step within limits, nothing compiled ahead",
    grammars={"json_schema", "json_object", "regex", "choice", "grammar", "structural_tag"},
    priority=60,
    isolate=True,
)
