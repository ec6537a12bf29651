"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

HELIUM = ModelSpec(
    name="helium",
    impl="core_plugin_helium.family:Helium",
    api=2,
    summary="Helium decoders",
    architectures=("HeliumForCausalLM",),
    shape="core_plugin_helium.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="helium-pooling",
    impl="core_plugin_helium.family:Helium",
    api=2,
    summary="Embedding models and classifiers made of Helium decoders",
    architectures=("HeliumModel", "HeliumForSequenceClassification"),
    shape="core_plugin_helium.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
