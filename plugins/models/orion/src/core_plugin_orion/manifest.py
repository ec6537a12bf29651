"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

ORION = ModelSpec(
    name="orion",
    impl="core_plugin_orion.family:Orion",
    api=2,
    summary="Orion decoders",
    architectures=("OrionForCausalLM",),
    shape="core_plugin_orion.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
