"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

BAICHUAN = ModelSpec(
    name="baichuan",
    impl="core_plugin_baichuan.family:Baichuan",
    api=2,
    summary="Baichuan decoders of the first generation",
    architectures=("BaichuanForCausalLM", "BaiChuanForCausalLM"),
    shape="core_plugin_baichuan.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
