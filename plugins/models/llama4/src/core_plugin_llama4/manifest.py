"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

LLAMA4 = ModelSpec(
    name="llama4",
    impl="core_plugin_llama4.family:Llama4",
    api=2,
    summary="Llama 4 text decoders",
    architectures=("Llama4ForCausalLM",),
    shape="core_plugin_llama4.family:shape",
)
