"""Families whose calls are written as functions are called."""

from __future__ import annotations

from core_plugin_parsers import Block, BraceCalls, Family, Prose, PythonCalls

THINK = Block(("<think>",), Prose.REASONING, ("</think>",))

PYTHONIC = Family(bare=PythonCalls(), bare_heads="[")
LLAMA4 = Family(
    (Block(("<|python_start|>",), PythonCalls(closes=("<|python_end|>",))),), bare=PythonCalls(), bare_heads="["
)
OLMO3 = Family((THINK, Block(("<function_calls>",), PythonCalls(closes=("</function_calls>",), bracketed=False))))
LFM2 = Family((THINK, Block(("<|tool_call_start|>",), PythonCalls(closes=("<|tool_call_end|>",)))))
FUNCTIONGEMMA = Family((Block(("<start_function_call>",), BraceCalls("<end_function_call>", "<escape>")),))
GEMMA4 = Family(
    (
        Block(("<|channel>thought",), Prose.REASONING, ("<channel|>",)),
        Block(("<|tool_call>",), BraceCalls("<tool_call|>", '<|"|>')),
    )
)
