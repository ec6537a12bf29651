"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

PERSIMMON = ModelSpec(
    name="persimmon",
    impl="core_plugin_persimmon.family:Persimmon",
    api=2,
    summary="Persimmon",
    architectures=("PersimmonForCausalLM",),
    shape="core_plugin_persimmon.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="persimmon-pooling",
    impl="core_plugin_persimmon.family:Persimmon",
    api=2,
    summary="Embedding models and classifiers made of Persimmon",
    architectures=("PersimmonModel", "PersimmonForSequenceClassification"),
    shape="core_plugin_persimmon.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
