"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

MINIMAX_TEXT = ModelSpec(
    name="minimax-text",
    impl="core_plugin_minimax.text:MiniMaxText",
    api=2,
    summary="MiniMax-Text-01 and MiniMax-M1 decoders",
    architectures=("MiniMaxForCausalLM", "MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM"),
    shape="core_plugin_minimax.text:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

MINIMAX_M2 = ModelSpec(
    name="minimax-m2",
    impl="core_plugin_minimax.family:MiniMaxM2",
    api=2,
    summary="MiniMax-M2 decoders",
    architectures=("MiniMaxM2ForCausalLM",),
    shape="core_plugin_minimax.family:shape",
)
