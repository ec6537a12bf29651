"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

POOLED = frozenset({"embed", "classify"})

PHI = ModelSpec(
    name="phi",
    impl="core_plugin_phi.phi:Phi",
    api=2,
    summary="Phi 1, 1.5 and 2",
    architectures=("PhiForCausalLM",),
    shape="core_plugin_phi.phi:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

PHI_POOLING = ModelSpec(
    name="phi-pooling",
    impl="core_plugin_phi.phi:Phi",
    api=2,
    summary="Embedding models and classifiers made of Phi 1, 1.5 and 2",
    architectures=("PhiModel", "PhiForSequenceClassification"),
    shape="core_plugin_phi.phi:shape",
    tasks=POOLED,
)

PHI3 = ModelSpec(
    name="phi3",
    impl="core_plugin_phi.phi3:Phi3",
    api=2,
    summary="Phi-3, Phi-3.5 and Phi-4 dense decoders",
    architectures=("Phi3ForCausalLM",),
    shape="core_plugin_phi.phi3:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

PHI3_POOLING = ModelSpec(
    name="phi3-pooling",
    impl="core_plugin_phi.phi3:Phi3",
    api=2,
    summary="Embedding models and classifiers made of Phi-3 and Phi-4",
    architectures=("Phi3Model", "Phi3ForSequenceClassification"),
    shape="core_plugin_phi.phi3:shape",
    tasks=POOLED,
)

PHIMOE = ModelSpec(
    name="phimoe",
    impl="core_plugin_phi.phimoe:PhiMoE",
    api=2,
    summary="Phi-3.5-MoE decoders",
    architectures=("PhimoeForCausalLM", "PhiMoEForCausalLM"),
    shape="core_plugin_phi.phimoe:shape",
)

PHIMOE_POOLING = ModelSpec(
    name="phimoe-pooling",
    impl="core_plugin_phi.phimoe:PhiMoE",
    api=2,
    summary="Embedding models and classifiers made of Phi-3.5-MoE",
    architectures=("PhimoeModel", "PhimoeForSequenceClassification"),
    shape="core_plugin_phi.phimoe:shape",
    tasks=POOLED,
)
