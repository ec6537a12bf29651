"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

ARCTIC = ModelSpec(
    name="arctic",
    impl="core_plugin_arctic.family:Arctic",
    api=2,
    summary="Arctic decoders",
    architectures=("ArcticForCausalLM",),
    shape="core_plugin_arctic.family:shape",
)
