"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import QuantSpec

COMPRESSED_TENSORS = QuantSpec(
    name="compressed-tensors",
    impl="core_plugin_compressed_tensors.scheme:CompressedFormat",
    api=2,
    summary="compressed-tensors checkpoints: int4, int8, FP8, NVFP4 and MX weights; AutoRound's NVFP4 and MX",
    band=1,
    methods=frozenset({"compressed-tensors", "auto-round", "intel/auto-round", "inc"}),
    refine="core_plugin_compressed_tensors.config:refine",
    options="core_plugin_compressed_tensors.config:CompressedOptions",
    forms_of="core_plugin_compressed_tensors.config:forms_of",
)
