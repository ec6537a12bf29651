"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

GLM = ModelSpec(
    name="glm",
    impl="core_plugin_glm.glm:Glm",
    api=2,
    summary="GLM-4 dense decoders, of 2024 and of 2025",
    architectures=("GlmForCausalLM", "Glm4ForCausalLM"),
    shape="core_plugin_glm.glm:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

GLM_POOLING = ModelSpec(
    name="glm-pooling",
    impl="core_plugin_glm.glm:Glm",
    api=2,
    summary="Embedding models and classifiers made of GLM-4",
    architectures=("GlmModel", "GlmForSequenceClassification", "Glm4Model", "Glm4ForSequenceClassification"),
    shape="core_plugin_glm.glm:shape",
    tasks=frozenset({"embed", "classify"}),
)

CHATGLM = ModelSpec(
    name="chatglm",
    impl="core_plugin_glm.chatglm:ChatGLM",
    api=2,
    summary="ChatGLM2 and 3, and GLM-4-9B in its makers' form",
    architectures=("ChatGLMModel", "ChatGLMForConditionalGeneration"),
    shape="core_plugin_glm.chatglm:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

GLM_MOE = ModelSpec(
    name="glm-moe",
    impl="core_plugin_glm.moe:GlmMoE",
    api=2,
    summary="GLM-4.5 to GLM-4.7, decoders with experts",
    architectures=("Glm4MoeForCausalLM",),
    shape="core_plugin_glm.moe:shape",
)
