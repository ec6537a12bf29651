"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

QWEN1 = ModelSpec(
    name="qwen1",
    impl="core_plugin_qwen1.family:QWen",
    api=2,
    summary="Qwen decoders of the first generation",
    architectures=("QWenLMHeadModel",),
    shape="core_plugin_qwen1.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
