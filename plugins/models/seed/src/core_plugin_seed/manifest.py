"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

SEED = ModelSpec(
    name="seed",
    impl="core_plugin_seed.family:SeedOss",
    api=2,
    summary="Seed-OSS decoders",
    architectures=("SeedOssForCausalLM",),
    shape="core_plugin_seed.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="seed-pooling",
    impl="core_plugin_seed.family:SeedOss",
    api=2,
    summary="Embedding models and classifiers made of Seed-OSS",
    architectures=("SeedOssModel", "SeedOssForSequenceClassification"),
    shape="core_plugin_seed.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
