"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

JAIS = ModelSpec(
    name="jais2",
    impl="core_plugin_jais.family:Jais2",
    api=2,
    summary="Jais 2 decoders",
    architectures=("Jais2ForCausalLM",),
    shape="core_plugin_jais.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
