"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

GEMMA = ModelSpec(
    name="gemma",
    impl="core_plugin_gemma.family:Gemma",
    api=2,
    summary="Gemma 1, 2 and 3, VaultGemma and Rnj-1 text decoders",
    architectures=(
        *("GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "VaultGemmaForCausalLM"),
        "Rnj1ForCausalLM",
    ),
    shape="core_plugin_gemma.family:shape",
    chat_templates="core_plugin_gemma.chat:Templates",
)

GEMMA3N = ModelSpec(
    name="gemma3n",
    impl="core_plugin_gemma.gemma3n:Gemma3n",
    api=2,
    summary="Gemma 3n text decoders",
    architectures=("Gemma3nForCausalLM",),
    shape="core_plugin_gemma.gemma3n:shape",
    chat_templates="core_plugin_gemma.chat:Templates",
)

GEMMA4 = ModelSpec(
    name="gemma4",
    impl="core_plugin_gemma.gemma4:Gemma4",
    api=2,
    summary="Gemma 4 text decoders, with experts or without",
    architectures=("Gemma4ForCausalLM",),
    shape="core_plugin_gemma.gemma4:shape",
    chat_templates="core_plugin_gemma.chat:Templates",
)

RECURRENT = ModelSpec(
    name="recurrent-gemma",
    impl="core_plugin_gemma.recurrent:RecurrentGemma",
    api=2,
    summary="RecurrentGemma decoders",
    architectures=("RecurrentGemmaForCausalLM",),
    shape="core_plugin_gemma.recurrent:shape",
    chat_templates="core_plugin_gemma.chat:Templates",
)

POOLING = ModelSpec(
    name="gemma-pooling",
    impl="core_plugin_gemma.family:Gemma",
    api=2,
    summary="Embedding models (EmbeddingGemma) and classifiers made of the same decoders",
    architectures=(
        *(f"Gemma{version}{kind}" for version in ("", "2") for kind in ("Model", "ForSequenceClassification")),
        *("Gemma3TextModel", "Gemma3TextForSequenceClassification"),
    ),
    shape="core_plugin_gemma.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
