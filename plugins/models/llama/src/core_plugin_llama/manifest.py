"""What this distribution offers, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

_FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")

LLAMA = ModelSpec(
    name="llama",
    impl="core_plugin_llama.model:CausalLM",
    api=2,
    summary="Llama 2/3, SmolLM2, Mistral, Qwen2 and Qwen3 dense decoders",
    architectures=tuple(f"{family}ForCausalLM" for family in _FAMILIES),
    shape="core_plugin_llama.config:shape",
    chat_templates="core_plugin_llama.chat:Templates",
)

POOLING = ModelSpec(
    name="llama-pooling",
    impl="core_plugin_llama.model:CausalLM",
    api=2,
    summary="Embedding models and classifiers made of the same decoders",
    architectures=tuple(family + kind for family in _FAMILIES for kind in ("Model", "ForSequenceClassification")),
    shape="core_plugin_llama.config:shape",
    tasks=frozenset({"embed", "classify"}),
)
