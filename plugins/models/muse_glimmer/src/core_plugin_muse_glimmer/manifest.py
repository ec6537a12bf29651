"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

MUSE_GLIMMER = ModelSpec(
    name="muse-glimmer",
    impl="core_plugin_muse_glimmer.family:MuseGlimmer",
    api=2,
    summary="Muse Glimmer text decoders",
    architectures=("MuseGlimmerForCausalLM",),
    shape="core_plugin_muse_glimmer.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
