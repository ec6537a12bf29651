"""What this distribution offers, as data."""

from __future__ import annotations

from core.api.descriptors import QuantSpec

COMPRESSED_TENSORS = QuantSpec(
    name="compressed-tensors",
    impl="core_plugin_compressed_tensors.scheme:CompressedFormat",
    api=2,
    summary="compressed-tensors int8 weights, activations int8 per token or left as they are",
    band=1,
    methods=frozenset({"compressed-tensors"}),
    refine="core_plugin_compressed_tensors.config:refine",
    forms_of="core_plugin_compressed_tensors.config:forms_of",
)
