"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

MPT = ModelSpec(
    name="mpt",
    impl="core_plugin_mpt.family:MPT",
    api=2,
    summary="MPT",
    architectures=("MptForCausalLM", "MPTForCausalLM"),
    shape="core_plugin_mpt.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="mpt-pooling",
    impl="core_plugin_mpt.family:MPT",
    api=2,
    summary="Embedding models and classifiers made of MPT",
    architectures=("MptModel", "MptForSequenceClassification"),
    shape="core_plugin_mpt.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
