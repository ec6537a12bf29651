"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

_FAMILY = "core_plugin_internlm.family"

INTERNLM = ModelSpec(
    name="internlm",
    impl=f"{_FAMILY}:InternLM",
    api=2,
    summary="InternLM decoders of the first generation",
    architectures=("InternLMForCausalLM",),
    shape=f"{_FAMILY}:first_shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

INTERNLM2 = ModelSpec(
    name="internlm2",
    impl=f"{_FAMILY}:InternLM2",
    api=2,
    summary="InternLM decoders of the second generation",
    architectures=("InternLM2ForCausalLM",),
    shape=f"{_FAMILY}:second_shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

INTERNLM2_POOLING = ModelSpec(
    name="internlm2-pooling",
    impl=f"{_FAMILY}:InternLM2",
    api=2,
    summary="Reward models and classifiers made of InternLM 2",
    architectures=("InternLM2ForRewardModel", "InternLM2ForSequenceClassification", "InternLM2Model"),
    shape=f"{_FAMILY}:second_shape",
    tasks=frozenset({"embed", "classify"}),
)

INTERNLM3 = ModelSpec(
    name="internlm3",
    impl=f"{_FAMILY}:InternLM3",
    api=2,
    summary="InternLM decoders of the third generation",
    architectures=("InternLM3ForCausalLM",),
    shape=f"{_FAMILY}:third_shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
