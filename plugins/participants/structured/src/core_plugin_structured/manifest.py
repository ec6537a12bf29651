"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import OptionSection, ParticipantSpec

STRUCTURED = ParticipantSpec(
    name="structured",
    impl="core_plugin_structured.compiling.setup:StructuredOutput",
    worker_impl="core_plugin_structured.worker:StructuredWorker",
    parts="core_plugin_structured.parts:PARTS",
    api=1,
    summary="Answers in the form of a grammar, and thinking that ends in time",
    automatic=True,
    tasks=frozenset({"generate"}),
    honours=("grammar", "thinking_token_budget"),
    drives=("core.structured_output",),
    settings=(
        "additional_properties",
        "grammar_timeout",
        "grammar_workers",
        "grammar_memory_mib",
        "grammar_cache_mib",
    ),
    constrains=True,
)

STRUCTURED_OPTIONS = OptionSection(
    name="structured",
    impl="core_plugin_structured.options:StructuredOptions",
    api=1,
    summary="Options of structured output",
)
