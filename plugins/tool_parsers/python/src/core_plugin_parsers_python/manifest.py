"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import ToolParserSpec

_TOOLS = frozenset({"tools"})
_BOTH = frozenset({"tools", "reasoning"})


def _spec(
    name: str, family: str, summary: str, *markers: str, reads: frozenset[str] = _TOOLS, special: bool = False
) -> ToolParserSpec:
    return ToolParserSpec(
        name=name,
        impl=f"core_plugin_parsers_python.families:{family}",
        api=1,
        summary=summary,
        markers=markers,
        reads=reads,
        special_tokens=special,
    )


PYTHONIC = _spec("pythonic", "PYTHONIC", "a Python list of calls as the whole message")
LLAMA4_PYTHONIC = _spec(
    "llama4_pythonic", "LLAMA4", "Llama 4: a list of calls, bare or tagged", "<|python_start|>", special=True
)
OLMO3 = _spec("olmo3", "OLMO3", "OLMo 3: a call a line in <function_calls>", "<function_calls>", reads=_BOTH)
LFM2 = _spec("lfm2", "LFM2", "LFM2: a list of calls between tags", "<|tool_call_start|>", reads=_BOTH, special=True)
FUNCTIONGEMMA = _spec(
    "functiongemma", "FUNCTIONGEMMA", "FunctionGemma: call:f{...}", "<start_function_call>", special=True
)
GEMMA4 = _spec(
    "gemma4", "GEMMA4", "Gemma 4: call:f{...} and thought channels", "<|tool_call>", reads=_BOTH, special=True
)
