"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

BAILING_MOE = ModelSpec(
    name="bailing-moe",
    impl="core_plugin_bailing_moe.family:BailingMoE",
    api=2,
    summary="Ling decoders, first and second version",
    architectures=("BailingMoeForCausalLM", "BailingMoeV2ForCausalLM"),
    shape="core_plugin_bailing_moe.family:shape",
)
