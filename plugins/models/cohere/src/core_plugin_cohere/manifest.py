"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

COHERE = ModelSpec(
    name="cohere",
    impl="core_plugin_cohere.family:Cohere",
    api=2,
    summary="Command R, Command A and Aya decoders",
    architectures=("CohereForCausalLM", "Cohere2ForCausalLM"),
    shape="core_plugin_cohere.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
