"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

PLAMO2 = ModelSpec(
    name="plamo2",
    impl="core_plugin_plamo.plamo2:Plamo2",
    api=2,
    summary="PLaMo 2 decoders of state spaces and attention",
    architectures=("Plamo2ForCausalLM",),
    shape="core_plugin_plamo.plamo2:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

PLAMO3 = ModelSpec(
    name="plamo3",
    impl="core_plugin_plamo.plamo3:Plamo3",
    api=2,
    summary="PLaMo 3 dense decoders",
    architectures=("Plamo3ForCausalLM",),
    shape="core_plugin_plamo.plamo3:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
