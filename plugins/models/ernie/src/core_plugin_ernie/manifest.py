"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

ERNIE = ModelSpec(
    name="ernie",
    impl="core_plugin_ernie.family:Ernie",
    api=2,
    summary="ERNIE 4.5 dense decoders",
    architectures=("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"),
    shape="core_plugin_ernie.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

MOE = ModelSpec(
    name="ernie-moe",
    impl="core_plugin_ernie.moe:ErnieMoE",
    api=2,
    summary="ERNIE 4.5 decoders with experts",
    architectures=("Ernie4_5_MoeForCausalLM",),
    shape="core_plugin_ernie.moe:shape",
)
