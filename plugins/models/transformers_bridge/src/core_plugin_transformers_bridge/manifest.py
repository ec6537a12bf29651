"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

BRIDGE = ModelSpec(
    name="transformers-bridge",
    impl="core_plugin_transformers_bridge.model:Bridge",
    api=2,
    summary="Any causal language model of transformers with replaceable attention",
    architectures=("*",),
    shape="core_plugin_transformers_bridge.shape:shape",
    band=1,
    priority=0,
    fallback="transformers' own forward pass, operation by operation: slower, on one rank, never a graph or program",
    graphs=False,
)
