"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import QuantSpec

AWQ = QuantSpec(
    name="awq",
    impl="core_plugin_awq.scheme:AWQFormat",
    api=2,
    summary="AWQ 4-bit weights, those of AutoRound too",
    band=1,
    methods=frozenset({"awq", "auto-round", "intel/auto-round", "inc"}),
    refine="core_plugin_awq.config:refine",
    forms_of="core_plugin_awq.config:forms_of",
)
