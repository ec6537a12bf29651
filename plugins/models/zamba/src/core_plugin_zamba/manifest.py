"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

ZAMBA2 = ModelSpec(
    name="zamba2",
    impl="core_plugin_zamba.family:Zamba2",
    api=2,
    summary="Zamba2 decoders of Mamba-2 and shared transformer blocks",
    architectures=("Zamba2ForCausalLM",),
    shape="core_plugin_zamba.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
