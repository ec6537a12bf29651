"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

NEMOTRON = ModelSpec(
    name="nemotron",
    impl="core_plugin_nemotron.family:Nemotron",
    api=2,
    summary="Nemotron dense decoders",
    architectures=("NemotronForCausalLM",),
    shape="core_plugin_nemotron.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="nemotron-pooling",
    impl="core_plugin_nemotron.family:Nemotron",
    api=2,
    summary="Embedding models and classifiers made of Nemotron decoders",
    architectures=("NemotronModel", "NemotronForSequenceClassification"),
    shape="core_plugin_nemotron.family:shape",
    tasks=frozenset({"embed", "classify"}),
)

HYBRID = ModelSpec(
    name="nemotron-h",
    impl="core_plugin_nemotron.hybrid:NemotronH",
    api=2,
    summary="Nemotron-H decoders of Mamba-2, attention, MLPs and mixtures of experts",
    architectures=("NemotronHForCausalLM",),
    shape="core_plugin_nemotron.hybrid:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
