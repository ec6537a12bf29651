"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

QWEN_NEXT = ModelSpec(
    name="qwen-next",
    impl="core_plugin_qwen_next.family:QwenNext",
    api=2,
    summary="Qwen3-Next and Qwen3.5 decoders",
    architectures=(
        "Qwen3NextForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    ),
    shape="core_plugin_qwen_next.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
