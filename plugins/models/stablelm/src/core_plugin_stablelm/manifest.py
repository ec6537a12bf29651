"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

STABLELM = ModelSpec(
    name="stablelm",
    impl="core_plugin_stablelm.family:StableLM",
    api=2,
    summary="StableLM decoders",
    architectures=("StableLmForCausalLM", "StableLMEpochForCausalLM"),
    shape="core_plugin_stablelm.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="stablelm-pooling",
    impl="core_plugin_stablelm.family:StableLM",
    api=2,
    summary="Embedding models and classifiers made of StableLm decoders",
    architectures=("StableLmModel", "StableLmForSequenceClassification"),
    shape="core_plugin_stablelm.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
