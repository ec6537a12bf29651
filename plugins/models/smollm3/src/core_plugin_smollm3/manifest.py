"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

SMOLLM3 = ModelSpec(
    name="smollm3",
    impl="core_plugin_smollm3.family:SmolLM3",
    api=2,
    summary="SmolLM3 decoders",
    architectures=("SmolLM3ForCausalLM",),
    shape="core_plugin_smollm3.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="smollm3-pooling",
    impl="core_plugin_smollm3.family:SmolLM3",
    api=2,
    summary="Embedding models and classifiers made of SmolLM3 decoders",
    architectures=("SmolLM3Model", "SmolLM3ForSequenceClassification"),
    shape="core_plugin_smollm3.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
