"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import QuantSpec

MX = QuantSpec(
    name="mx",
    impl="core_plugin_mx.scheme:MX",
    api=2,
    summary="Microscaling formats: MXFP4 (gpt-oss, Quark) and MXFP8 (Quark), powers of two for 32 inputs each",
    band=1,
    methods=frozenset({"mxfp4", "mxfp8", "quark"}),
    refine="core_plugin_mx.config:refine",
    forms_of="core_plugin_mx.config:forms_of",
    options="core_plugin_mx.config:MXOptions",
)
