"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

SOLAR = ModelSpec(
    name="solar",
    impl="core_plugin_solar.family:Solar",
    api=2,
    summary="Solar Pro dense decoders",
    architectures=("SolarForCausalLM",),
    shape="core_plugin_solar.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
