"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

QWEN_MOE = ModelSpec(
    name="qwen-moe",
    impl="core_plugin_qwen_moe.family:QwenMoE",
    api=2,
    summary="Qwen2-MoE and Qwen3-MoE decoders",
    architectures=("Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"),
    shape="core_plugin_qwen_moe.family:shape",
)

POOLING = ModelSpec(
    name="qwen-moe-pooling",
    impl="core_plugin_qwen_moe.family:QwenMoE",
    api=2,
    summary="Embedding models and classifiers made of them",
    architectures=tuple(
        f"Qwen{version}Moe{kind}" for version in (2, 3) for kind in ("Model", "ForSequenceClassification")
    ),
    shape="core_plugin_qwen_moe.family:shape",
    tasks=frozenset({"embed", "classify"}),
)
