"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

OPT = ModelSpec(
    name="opt",
    impl="core_plugin_opt.family:OPT",
    api=2,
    summary="OPT and Galactica",
    architectures=("OPTForCausalLM",),
    shape="core_plugin_opt.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="opt-pooling",
    impl="core_plugin_opt.family:OPT",
    api=2,
    summary="Embedding models and classifiers made of OPT and Galactica",
    architectures=("OPTModel", "OPTForSequenceClassification"),
    shape="core_plugin_opt.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
