"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

BLOOM = ModelSpec(
    name="bloom",
    impl="core_plugin_bloom.family:Bloom",
    api=2,
    summary="BLOOM and BLOOMZ",
    architectures=("BloomForCausalLM",),
    shape="core_plugin_bloom.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="bloom-pooling",
    impl="core_plugin_bloom.family:Bloom",
    api=2,
    summary="Embedding models and classifiers made of BLOOM and BLOOMZ",
    architectures=("BloomModel", "BloomForSequenceClassification"),
    shape="core_plugin_bloom.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
