"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

_FAMILIES = ("Olmo", "Olmo2", "Olmo3")

OLMO = ModelSpec(
    name="olmo",
    impl="core_plugin_olmo.family:Olmo",
    api=2,
    summary="OLMo 1, 2 and 3 decoders",
    architectures=tuple(f"{family}ForCausalLM" for family in _FAMILIES),
    shape="core_plugin_olmo.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="olmo-pooling",
    impl="core_plugin_olmo.family:Olmo",
    api=2,
    summary="Embedding models and classifiers made of OLMo decoders",
    architectures=tuple(family + kind for family in _FAMILIES for kind in ("Model", "ForSequenceClassification")),
    shape="core_plugin_olmo.family:shape",
    tasks=frozenset({"embed", "classify"}),
)

MOE = ModelSpec(
    name="olmo-moe",
    impl="core_plugin_olmo.moe:OlmoMoE",
    api=2,
    summary="OLMoE and FlexOLMo decoders",
    architectures=("OlmoeForCausalLM", "FlexOlmoForCausalLM"),
    shape="core_plugin_olmo.moe:shape",
)
