"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

_FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")
_SPELLINGS = ("LLaMA", "Aquila", "Xverse", "Yi", "IQuestCoder", "Cwm", "PanguEmbedded", "MiMo", "Fairseq2Llama")

LLAMA = ModelSpec(
    name="llama",
    impl="core_plugin_llama.model:CausalLM",
    api=2,
    summary="Llama 2/3, SmolLM2, Mistral, Qwen2, Qwen3 dense decoders, and others of their kind",
    architectures=(*(f"{family}ForCausalLM" for family in (*_FAMILIES, *_SPELLINGS)), "AquilaModel"),
    shape="core_plugin_llama.config:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="llama-pooling",
    impl="core_plugin_llama.model:CausalLM",
    api=2,
    summary="Embedding models and classifiers made of the same decoders",
    architectures=(
        *(family + kind for family in _FAMILIES for kind in ("Model", "ForSequenceClassification")),
        *("LlamaBidirectionalModel", "LlamaBidirectionalForSequenceClassification"),
        *("VoyageQwen3BidirectionalEmbedModel", "Qwen2ForRewardModel", "Qwen2ForProcessRewardModel"),
        *("EuroBertModel", "EuroBertForMaskedLM"),
    ),
    shape="core_plugin_llama.config:shape",
    tasks=frozenset({"embed", "classify"}),
)
