"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

MIXTRAL = ModelSpec(
    name="mixtral",
    impl="core_plugin_mixtral.family:Mixtral",
    api=2,
    summary="Mixtral decoders",
    architectures=("MixtralForCausalLM",),
    shape="core_plugin_mixtral.family:shape",
)

POOLING = ModelSpec(
    name="mixtral-pooling",
    impl="core_plugin_mixtral.family:Mixtral",
    api=2,
    summary="Embedding models and classifiers made of Mixtral",
    architectures=("MixtralModel", "MixtralForSequenceClassification"),
    shape="core_plugin_mixtral.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
