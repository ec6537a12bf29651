"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

LOOP_CODER = ModelSpec(
    name="iquest-loop",
    impl="core_plugin_iquest.family:LoopCoder",
    api=2,
    summary="IQuest LoopCoder decoders, whose layers run several times",
    architectures=("IQuestLoopCoderForCausalLM",),
    shape="core_plugin_iquest.family:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
