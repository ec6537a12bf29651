"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import QuantSpec

FP8 = QuantSpec(
    name="fp8",
    impl="core_plugin_fp8.scheme:FP8",
    api=2,
    summary="Float8 weights (e4m3) in blocks, by outputs or as a whole; any weights rounded to them while they load",
    band=1,
    methods=frozenset({"fp8", "fbgemm_fp8", "auto-round", "intel/auto-round", "inc", "none", "gguf"}),
    rounds=frozenset({"none", "gguf"}),
    refine="core_plugin_fp8.config:refine",
    forms_of="core_plugin_fp8.config:forms_of",
    options="core_plugin_fp8.config:FP8Options",
)
