"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

HYPERCLOVAX = ModelSpec(
    name="hyperclovax",
    impl="core_plugin_hyperclovax.family:HyperCLOVAX",
    api=2,
    summary="HyperCLOVA X decoders",
    architectures=("HyperCLOVAXForCausalLM",),
    shape="core_plugin_hyperclovax.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
