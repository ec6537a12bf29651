"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import QuantSpec

GPTQ = QuantSpec(
    name="gptq",
    impl="core_plugin_gptq.scheme:GPTQFormat",
    api=2,
    summary="GPTQ weights of 2, 3, 4 and 8 bits, those of AutoRound too",
    band=1,
    methods=frozenset({"gptq", "auto-round", "intel/auto-round", "inc"}),
    refine="core_plugin_gptq.config:refine",
    forms_of="core_plugin_gptq.config:forms_of",
)
