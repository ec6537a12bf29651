"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

FALCON_H1 = ModelSpec(
    name="falcon-h1",
    impl="core_plugin_falcon_h1.family:FalconH1",
    api=2,
    summary="Falcon-H1 decoders",
    architectures=("FalconH1ForCausalLM",),
    shape="core_plugin_falcon_h1.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
