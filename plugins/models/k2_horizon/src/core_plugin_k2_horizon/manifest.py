"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

K2_HORIZON = ModelSpec(
    name="k2-horizon",
    impl="core_plugin_k2_horizon.family:K2Horizon",
    api=2,
    summary="K2 Horizon decoders without experts",
    architectures=("K2HorizonForCausalLM",),
    shape="core_plugin_k2_horizon.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
