"""What this distribution offers, as data."""

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
