"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

DOMYN_EDGE = ModelSpec(
    name="domyn-edge",
    impl="core_plugin_domyn.family:DomynEdge",
    api=2,
    summary="Domyn Edge dense decoders",
    architectures=("DomynEdgeForCausalLM",),
    shape="core_plugin_domyn.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
