"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

BAMBA = ModelSpec(
    name="bamba",
    impl="core_plugin_bamba.family:Bamba",
    api=2,
    summary="Bamba decoders",
    architectures=("BambaForCausalLM",),
    shape="core_plugin_bamba.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
