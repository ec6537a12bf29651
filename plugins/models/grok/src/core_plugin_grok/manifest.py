"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

GROK = ModelSpec(
    name="grok",
    impl="core_plugin_grok.family:Grok",
    api=2,
    summary="Grok decoders",
    architectures=("Grok1ForCausalLM", "Grok1ModelForCausalLM"),
    shape="core_plugin_grok.family:shape",
)
