"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

DECI = ModelSpec(
    name="deci",
    impl="core_plugin_deci.family:Deci",
    api=2,
    summary="Nemotron-NAS and DeciLM decoders, whose layers differ",
    architectures=("DeciLMForCausalLM",),
    shape="core_plugin_deci.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
