"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

KIMI_LINEAR = ModelSpec(
    name="kimi-linear",
    impl="core_plugin_kimi_linear.family:KimiLinear",
    api=2,
    summary="Kimi Linear decoders",
    architectures=("KimiLinearForCausalLM",),
    shape="core_plugin_kimi_linear.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
