"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

MINICPM = ModelSpec(
    name="minicpm",
    impl="core_plugin_minicpm.family:MiniCPM",
    api=2,
    summary="MiniCPM dense decoders: MiniCPM 1, 2 and 4",
    architectures=("MiniCPMForCausalLM",),
    shape="core_plugin_minicpm.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="minicpm-pooling",
    impl="core_plugin_minicpm.family:MiniCPM",
    api=2,
    summary="Embedding models and classifiers made of MiniCPM",
    architectures=("MiniCPMModel", "MiniCPMForSequenceClassification"),
    shape="core_plugin_minicpm.family:shape",
    tasks=frozenset({"embed", "classify"}),
)

MINICPM3 = ModelSpec(
    name="minicpm3",
    impl="core_plugin_minicpm.latent:MiniCPM3",
    api=2,
    summary="MiniCPM3: latent attention",
    architectures=("MiniCPM3ForCausalLM",),
    shape="core_plugin_minicpm.latent:shape",
)

MINICPM3_POOLING = ModelSpec(
    name="minicpm3-pooling",
    impl="core_plugin_minicpm.latent:MiniCPM3",
    api=2,
    summary="Embedding models and classifiers made of MiniCPM3",
    architectures=("MiniCPM3Model", "MiniCPM3ForSequenceClassification"),
    shape="core_plugin_minicpm.latent:shape",
    tasks=frozenset({"embed", "classify"}),
)
