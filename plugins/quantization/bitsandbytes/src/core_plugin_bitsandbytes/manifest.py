"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import QuantSpec

BITSANDBYTES = QuantSpec(
    name="bitsandbytes",
    impl="core_plugin_bitsandbytes.scheme:BitsAndBytes",
    api=2,
    summary="bitsandbytes checkpoints: 8-bit integers, NF4 and FP4, also with scales that are quantized themselves",
    band=1,
    methods=frozenset({"bitsandbytes"}),
    refine="core_plugin_bitsandbytes.config:refine",
    forms_of="core_plugin_bitsandbytes.config:forms_of",
)
