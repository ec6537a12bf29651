"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

LFM2 = ModelSpec(
    name="lfm2",
    impl="core_plugin_lfm2.family:LFM2",
    api=2,
    summary="LFM2 decoders, dense and with mixtures of experts",
    architectures=("Lfm2ForCausalLM", "Lfm2MoeForCausalLM"),
    shape="core_plugin_lfm2.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
