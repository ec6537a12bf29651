"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

MAMBA = ModelSpec(
    name="mamba",
    impl="core_plugin_mamba.family:MambaLM",
    api=2,
    summary="Mamba decoders, and those of FalconMamba",
    architectures=("MambaForCausalLM", "FalconMambaForCausalLM"),
    shape="core_plugin_mamba.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

MAMBA2 = ModelSpec(
    name="mamba2",
    impl="core_plugin_mamba.second:Mamba2LM",
    api=2,
    summary="Mamba-2 decoders",
    architectures=("Mamba2ForCausalLM",),
    shape="core_plugin_mamba.second:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
