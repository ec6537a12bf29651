"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import QuantSpec

HQQ = QuantSpec(
    name="hqq",
    impl="core_plugin_hqq.scheme:HQQFormat",
    api=2,
    summary="HQQ weights of 1, 2, 3, 4 and 8 bits, grouped along inputs or outputs",
    band=1,
    methods=frozenset({"hqq"}),
    refine="core_plugin_hqq.config:refine",
    forms_of="core_plugin_hqq.config:forms_of",
)
