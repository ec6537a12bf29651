"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

STARCODER2 = ModelSpec(
    name="starcoder2",
    impl="core_plugin_starcoder2.family:Starcoder2",
    api=2,
    summary="Starcoder2 decoders",
    architectures=("Starcoder2ForCausalLM",),
    shape="core_plugin_starcoder2.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="starcoder2-pooling",
    impl="core_plugin_starcoder2.family:Starcoder2",
    api=2,
    summary="Embedding models and classifiers made of Starcoder2 decoders",
    architectures=("Starcoder2Model", "Starcoder2ForSequenceClassification"),
    shape="core_plugin_starcoder2.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
