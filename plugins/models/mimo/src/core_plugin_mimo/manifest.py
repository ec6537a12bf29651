"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

MIMO_V2 = ModelSpec(
    name="mimo-v2",
    impl="core_plugin_mimo.family:MiMoV2",
    api=2,
    summary="MiMo-V2-Flash decoders",
    architectures=("MiMoV2FlashForCausalLM",),
    shape="core_plugin_mimo.family:shape",
)
