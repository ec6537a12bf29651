"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

FALCON = ModelSpec(
    name="falcon",
    impl="core_plugin_falcon.family:Falcon",
    api=2,
    summary="Falcon 1 and 2",
    architectures=("FalconForCausalLM", "RWForCausalLM"),
    shape="core_plugin_falcon.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="falcon-pooling",
    impl="core_plugin_falcon.family:Falcon",
    api=2,
    summary="Embedding models and classifiers made of Falcon 1 and 2",
    architectures=("FalconModel", "FalconForSequenceClassification"),
    shape="core_plugin_falcon.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
