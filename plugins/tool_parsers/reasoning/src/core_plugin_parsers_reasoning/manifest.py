"""Manifest of the distribution: its plugins' descriptors, as data."""

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
HOLO2 = _spec("holo2", "THINK", "Holo2: <think> ... </think>")
MINICPMV = _spec("minicpmv", "THINK", "MiniCPM-V: <think> ... </think>")
GRANITE_THINKING = _spec("granite_thinking_parser", "THINK", "Granite with <think> ... </think>")
MINIMAX_M2_APPEND_THINK = _spec("minimax_m2_append_think", "APPENDED", "MiniMax M2: the thinking stays in the text")
DEEPSEEK_R1_DASHED = DEEPSEEK_R1.replace(name="deepseek-r1")
QWEN3_THINKING = DEEPSEEK_R1.replace(name="qwen3-thinking", summary="Qwen3 Thinking: thinks first, up to </think>")
MINIMAX = DEEPSEEK_R1.replace(name="minimax", summary="MiniMax M2: thinks first, up to </think>")
MINIMAX_APPEND_THINK = MINIMAX_M2_APPEND_THINK.replace(name="minimax-append-think")
DEEPSEEK_V3_DASHED = QWEN3.replace(name="deepseek-v3", summary="DeepSeek V3: <think> ... </think>")
NANO_V3 = NEMOTRON_V3.replace(name="nano_v3")
KIMI = _spec("kimi", "KIMI", "Kimi: ◁think▷ ... ◁/think▷", "◁think▷")
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
GPT_OSS = _CHANNELS.replace(name="gpt-oss")
