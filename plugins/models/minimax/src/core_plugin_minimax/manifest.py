"""What this distribution offers, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

MINIMAX_M2 = ModelSpec(
    name="minimax-m2",
    impl="core_plugin_minimax.family:MiniMaxM2",
    api=2,
    summary="MiniMax-M2 decoders",
    architectures=("MiniMaxM2ForCausalLM",),
    shape="core_plugin_minimax.family:shape",
)
