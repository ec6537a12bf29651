"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

GPT_OSS = ModelSpec(
    name="gpt-oss",
    impl="core_plugin_gpt_oss.family:GptOss",
    api=2,
    summary="gpt-oss decoders",
    architectures=("GptOssForCausalLM",),
    shape="core_plugin_gpt_oss.family:shape",
)

POOLING = ModelSpec(
    name="gpt-oss-pooling",
    impl="core_plugin_gpt_oss.family:GptOss",
    api=2,
    summary="Embedding models and classifiers made of gpt-oss",
    architectures=("GptOssModel", "GptOssForSequenceClassification"),
    shape="core_plugin_gpt_oss.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
