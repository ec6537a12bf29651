"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

LONGCAT = ModelSpec(
    name="longcat",
    impl="core_plugin_longcat.family:LongcatFlash",
    api=2,
    summary="LongCat-Flash decoders",
    architectures=("LongcatFlashForCausalLM",),
    shape="core_plugin_longcat.family:shape",
)
