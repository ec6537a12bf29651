"""What this distribution offers, as data."""

from __future__ import annotations

from core.api.descriptors import QuantSpec

NONE = QuantSpec(
    name="none",
    impl="core_plugin_unquantized.plain:Plain",
    api=1,
    summary="Plain weights in the compute dtype",
    methods=frozenset({"none"}),
    forms_of="core_plugin_unquantized.forms:forms_of",
)
