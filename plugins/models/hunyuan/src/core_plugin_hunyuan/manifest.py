"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

HUNYUAN = ModelSpec(
    name="hunyuan",
    impl="core_plugin_hunyuan.family:HunYuan",
    api=2,
    summary="HunYuan dense decoders",
    architectures=("HunYuanDenseV1ForCausalLM",),
    shape="core_plugin_hunyuan.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

POOLING = ModelSpec(
    name="hunyuan-pooling",
    impl="core_plugin_hunyuan.family:HunYuan",
    api=2,
    summary="Embedding models and classifiers made of HunYuan's dense decoders",
    architectures=("HunYuanDenseV1Model", "HunYuanDenseV1ForSequenceClassification"),
    shape="core_plugin_hunyuan.family:shape",
    tasks=frozenset({"embed", "classify"}),
)

MOE = ModelSpec(
    name="hunyuan-moe",
    impl="core_plugin_hunyuan.moe:HunYuanMoE",
    api=2,
    summary="HunYuan decoders with experts",
    architectures=("HunYuanMoEV1ForCausalLM",),
    shape="core_plugin_hunyuan.moe:shape",
)

MOE_POOLING = ModelSpec(
    name="hunyuan-moe-pooling",
    impl="core_plugin_hunyuan.moe:HunYuanMoE",
    api=2,
    summary="Embedding models and classifiers made of HunYuan decoders with experts",
    architectures=("HunYuanMoEV1Model", "HunYuanMoEV1ForSequenceClassification"),
    shape="core_plugin_hunyuan.moe:shape",
    tasks=frozenset({"embed", "classify"}),
)

THIRD = ModelSpec(
    name="hunyuan-v3",
    impl="core_plugin_hunyuan.third:HunYuanThird",
    api=2,
    summary="Hy-V3 decoders",
    architectures=("HYV3ForCausalLM",),
    shape="core_plugin_hunyuan.third:shape",
)
