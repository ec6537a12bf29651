"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

XGLM = ModelSpec(
    name="xglm",
    impl="core_plugin_xglm.family:XGLM",
    api=2,
    summary="XGLM",
    architectures=("XGLMForCausalLM",),
    shape="core_plugin_xglm.family:shape",
)
