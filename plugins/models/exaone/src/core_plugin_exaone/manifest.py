"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

EXAONE = ModelSpec(
    name="exaone",
    impl="core_plugin_exaone.exaone3:Exaone",
    api=2,
    summary="EXAONE 3, 3.5 and Deep",
    architectures=("ExaoneForCausalLM",),
    shape="core_plugin_exaone.exaone3:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

EXAONE4 = ModelSpec(
    name="exaone4",
    impl="core_plugin_exaone.exaone4:Exaone4",
    api=2,
    summary="EXAONE 4 dense decoders",
    architectures=("Exaone4ForCausalLM",),
    shape="core_plugin_exaone.exaone4:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

EXAONE4_POOLING = ModelSpec(
    name="exaone4-pooling",
    impl="core_plugin_exaone.exaone4:Exaone4",
    api=2,
    summary="Embedding models and classifiers made of EXAONE 4",
    architectures=("Exaone4Model", "Exaone4ForSequenceClassification"),
    shape="core_plugin_exaone.exaone4:shape",
    tasks=frozenset({"embed", "classify"}),
)
