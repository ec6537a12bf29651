"""What this distribution offers, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

LLAMA = ModelSpec(
    name="llama",
    impl="core_plugin_llama.model:CausalLM",
    api=1,
    summary="Llama 2/3, SmolLM2, Mistral, Qwen2 and Qwen3 dense decoders",
    architectures=("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"),
    shape="core_plugin_llama.config:shape",
)
