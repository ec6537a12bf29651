"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import QuantSpec

MODELOPT = QuantSpec(
    name="modelopt",
    impl="core_plugin_modelopt.scheme:ModelOpt",
    api=2,
    summary="ModelOpt checkpoints: NVFP4, FP8 with one scale, by outputs or in blocks, MXFP8",
    band=1,
    methods=frozenset({"modelopt", "modelopt_fp4", "modelopt_mxfp8"}),
    refine="core_plugin_modelopt.config:refine",
    forms_of="core_plugin_modelopt.config:forms_of",
    options="core_plugin_modelopt.config:ModelOptOptions",
)
