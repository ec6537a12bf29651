"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import QuantSpec

NONE = QuantSpec(
    name="none",
    impl="core_plugin_unquantized.plain:Plain",
    api=2,
    summary="Plain weights in the compute dtype",
    methods=frozenset({"none"}),
    forms_of="core_plugin_unquantized.forms:forms_of",
)

INT8 = QuantSpec(
    name="int8",
    impl="core_plugin_unquantized.int8:Int8",
    api=2,
    summary="Any weights rounded to 8 bits while they load, activations per token",
    band=1,
    methods=frozenset({"none", "gguf"}),
    on_request=True,
    refine="core_plugin_unquantized.options:decodable",
    forms_of="core_plugin_unquantized.forms:int8_forms",
    options="core_plugin_unquantized.options:Int8Options",
)

INT4 = QuantSpec(
    name="int4",
    impl="core_plugin_unquantized.int4:Int4",
    api=2,
    summary="Any weights rounded to 4 bits in groups of inputs while they load",
    methods=frozenset({"none", "gguf"}),
    on_request=True,
    refine="core_plugin_unquantized.options:decodable",
    forms_of="core_plugin_unquantized.forms:int4_forms",
    options="core_plugin_unquantized.options:Int4Options",
)
