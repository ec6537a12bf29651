"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import QuantSpec

TORCHAO = QuantSpec(
    name="torchao",
    impl="core_plugin_torchao.scheme:TorchAO",
    api=2,
    summary="torchao checkpoints in safetensors files: int4, int8, integers of 1 to 8 bits, float8, MX, NVFP4",
    band=1,
    methods=frozenset({"torchao"}),
    refine="core_plugin_torchao.config:refine",
    forms_of="core_plugin_torchao.config:forms_of",
)
