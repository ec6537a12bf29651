"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

NANBEIGE = ModelSpec(
    name="nanbeige",
    impl="core_plugin_nanbeige.family:Nanbeige",
    api=2,
    summary="Nanbeige looped decoders",
    architectures=("NanbeigeForCausalLM",),
    shape="core_plugin_nanbeige.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
