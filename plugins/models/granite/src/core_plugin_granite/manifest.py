"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

GRANITE = ModelSpec(
    name="granite",
    impl="core_plugin_granite.family:Granite",
    api=2,
    summary="Granite dense decoders",
    architectures=("GraniteForCausalLM",),
    shape="core_plugin_granite.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

WINDOWED = ModelSpec(
    name="granite-windowed",
    impl="core_plugin_granite.windowed:GraniteWindowed",
    api=2,
    summary="Granite dense decoders with windows and attention sinks",
    architectures=("GraniteSWAForCausalLM",),
    shape="core_plugin_granite.windowed:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

MOE = ModelSpec(
    name="granite-moe",
    impl="core_plugin_granite.moe:GraniteMoE",
    api=2,
    summary="Granite decoders with experts",
    architectures=("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM", "GraniteMoeSWAForCausalLM"),
    shape="core_plugin_granite.moe:shape",
)

HYBRID = ModelSpec(
    name="granite-hybrid",
    impl="core_plugin_granite.hybrid:GraniteHybrid",
    api=2,
    summary="Granite decoders of Mamba-2 and attention, dense and with experts",
    architectures=("GraniteMoeHybridForCausalLM",),
    shape="core_plugin_granite.hybrid:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
