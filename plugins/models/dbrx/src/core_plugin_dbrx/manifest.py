"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

DBRX = ModelSpec(
    name="dbrx",
    impl="core_plugin_dbrx.family:Dbrx",
    api=2,
    summary="DBRX decoders",
    architectures=("DbrxForCausalLM",),
    shape="core_plugin_dbrx.family:shape",
)
