"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

DEEPSEEK = ModelSpec(
    name="deepseek",
    impl="core_plugin_deepseek.family:DeepSeek",
    api=2,
    summary="DeepSeek V2, V3, R1 and V3.2, Kimi K2, GLM-4-MoE-Lite and GLM-5: latent attention and experts",
    architectures=(
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
    ),
    shape="core_plugin_deepseek.family:shape",
)

POOLING = ModelSpec(
    name="deepseek-pooling",
    impl="core_plugin_deepseek.family:DeepSeek",
    api=2,
    summary="Embedding models and classifiers made of them",
    architectures=(
        "DeepseekV2Model",
        "DeepseekV3Model",
        "DeepseekV32Model",
        "Glm4MoeLiteModel",
        "GlmMoeDsaModel",
        "DeepseekV2ForSequenceClassification",
        "DeepseekV3ForSequenceClassification",
    ),
    shape="core_plugin_deepseek.family:shape",
    tasks=frozenset({"embed", "classify"}),
)

MOE = ModelSpec(
    name="deepseek-moe",
    impl="core_plugin_deepseek.first:DeepSeekMoE",
    api=2,
    summary="The first DeepSeek-MoE decoders",
    architectures=("DeepseekForCausalLM",),
    shape="core_plugin_deepseek.first:shape",
)

FOURTH = ModelSpec(
    name="deepseek-v4",
    impl="core_plugin_deepseek.fourth.model:DeepSeekV4",
    api=2,
    summary="DeepSeek V4: compressed attention, hyper-connections",
    architectures=("DeepseekV4ForCausalLM",),
    shape="core_plugin_deepseek.fourth.reading:shape",
)
