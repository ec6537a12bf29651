"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

APERTUS = ModelSpec(
    name="apertus",
    impl="core_plugin_apertus.family:Apertus",
    api=2,
    summary="Apertus decoders",
    architectures=("ApertusForCausalLM",),
    shape="core_plugin_apertus.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
