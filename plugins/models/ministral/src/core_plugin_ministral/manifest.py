"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

_FAMILIES = ("Ministral", "Ministral3")

MINISTRAL = ModelSpec(
    name="ministral",
    impl="core_plugin_ministral.family:Ministral",
    api=2,
    summary="Ministral and Ministral 3 decoders",
    architectures=tuple(f"{family}ForCausalLM" for family in _FAMILIES),
    shape="core_plugin_ministral.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="ministral-pooling",
    impl="core_plugin_ministral.family:Ministral",
    api=2,
    summary="Embedding models and classifiers made of the same decoders",
    architectures=tuple(family + kind for family in _FAMILIES for kind in ("Model", "ForSequenceClassification")),
    shape="core_plugin_ministral.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
