"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

STEP1 = ModelSpec(
    name="step1",
    impl="core_plugin_step.step1:Step1",
    api=2,
    summary="Step-1 dense decoders",
    architectures=("Step1ForCausalLM",),
    shape="core_plugin_step.step1:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
