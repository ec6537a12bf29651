"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

ARCEE = ModelSpec(
    name="arcee",
    impl="core_plugin_arcee.family:Arcee",
    api=2,
    summary="Arcee AFM decoders",
    architectures=("ArceeForCausalLM",),
    shape="core_plugin_arcee.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="arcee-pooling",
    impl="core_plugin_arcee.family:Arcee",
    api=2,
    summary="Embedding models and classifiers made of Arcee decoders",
    architectures=("ArceeModel", "ArceeForSequenceClassification"),
    shape="core_plugin_arcee.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
