"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

DORY = ModelSpec(
    name="dory",
    impl="core_plugin_dory.model:Dory",
    api=2,
    summary="Dory decoders, whose middle layers run several times",
    architectures=("DoryForCausalLM",),
    shape="core_plugin_dory.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
