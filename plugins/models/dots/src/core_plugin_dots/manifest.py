"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

DOTS = ModelSpec(
    name="dots",
    impl="core_plugin_dots.family:Dots",
    api=2,
    summary="dots.llm1 decoders",
    architectures=("Dots1ForCausalLM",),
    shape="core_plugin_dots.family:shape",
)
