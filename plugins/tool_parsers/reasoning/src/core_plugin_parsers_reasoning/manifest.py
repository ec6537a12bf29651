"""What this distribution offers, as data."""

from __future__ import annotations

from core.api import ToolParserSpec

_REASONING = frozenset({"reasoning"})


def _spec(name: str, family: str, summary: str, *markers: str) -> ToolParserSpec:
    return ToolParserSpec(
        name=name,
        impl=f"core_plugin_parsers_reasoning.families:{family}",
        api=1,
        summary=summary,
        markers=markers,
        reads=_REASONING,
    )


DEEPSEEK_R1 = _spec("deepseek_r1", "THINK_FIRST", "DeepSeek R1: thinks first, up to </think>", "</think>")
QWEN3 = _spec("qwen3", "THINK", "Qwen3: <think> ... </think>", "<think>")
NEMOTRON_V3 = _spec("nemotron_v3", "THINK", "Nemotron 3: <think> ... </think>")
STEP3 = _spec("step3", "THINK_FIRST", "Step 3: thinks first, up to </think>")
HOLO2 = _spec("holo2", "THINK", "Holo2: <think> ... </think>")
MINICPMV = _spec("minicpmv", "THINK", "MiniCPM-V: <think> ... </think>")
MINIMAX_M3 = _spec("minimax_m3", "MINIMAX_M3", "MiniMax M3: <mm:think> ... </mm:think>", "<mm:think>")
_CHANNELS = ToolParserSpec(
    name="openai",
    impl="core_plugin_parsers_reasoning.families:HARMONY",
    api=1,
    summary="gpt-oss: Harmony's channels, calls included",
    markers=("<|channel|>",),
    special_tokens=True,
)
OPENAI = _CHANNELS
OPENAI_GPTOSS = _CHANNELS.replace(name="openai_gptoss")
