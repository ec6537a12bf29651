"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

JAMBA = ModelSpec(
    name="jamba",
    impl="core_plugin_jamba.family:Jamba",
    api=2,
    summary="Jamba decoders, dense and with mixtures of experts",
    architectures=("JambaForCausalLM",),
    shape="core_plugin_jamba.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
