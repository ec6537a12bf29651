"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

OURO = ModelSpec(
    name="ouro",
    impl="core_plugin_ouro.family:Ouro",
    api=2,
    summary="Ouro decoders, whose layers run several times",
    architectures=("OuroForCausalLM",),
    shape="core_plugin_ouro.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
