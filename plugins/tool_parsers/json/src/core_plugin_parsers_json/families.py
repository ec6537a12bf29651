"""Families whose calls are JSON."""

from __future__ import annotations

from core_plugin_parsers import Block, Either, Family, JsonCalls, NamedCalls, Prose
from core_plugin_parsers.json_object import ObjectKeys

THINK = Block(("<think>",), Prose.REASONING, ("</think>",))
BRACKET_THINK = Block(("[THINK]",), Prose.REASONING, ("[/THINK]",))


def tagged(opens: str, closes: str) -> Block:
    """Return a block of one object, or of an array of them, between tags."""
    return Block((opens,), JsonCalls(closes=(closes,), several=True, separators=",;"))


HERMES = Family((THINK, Block(("<tool_call>",), JsonCalls(closes=("</tool_call>",)))))

_LLAMA = JsonCalls(several=True, separators=";")
LLAMA3 = Family((Block(("<|python_tag|>",), _LLAMA),), bare=_LLAMA, bare_heads="{", drops=("<|eom_id|>",))

_MISTRAL_NAMED = NamedCalls(name=r"\s*(?P<name>[\w.-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*", single=True)
MISTRAL = Family((BRACKET_THINK, Block(("[TOOL_CALLS]",), Either({"[": JsonCalls()}, _MISTRAL_NAMED))))

GRANITE = Family(
    (
        Block(
            ("Here is my thought process:", "Here's my thought process:"),
            Prose.REASONING,
            ("Here is my response:", "Here's my response:"),
        ),
        Block(("<|tool_call|>",), JsonCalls()),
        tagged("<tool_call>", "</tool_call>"),
    )
)
GRANITE_20B = Family((Block(("<function_call>",), JsonCalls()),))

INTERNLM = Family(
    (Block(("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"), JsonCalls(("<|action_end|>",))),)
)

JAMBA = Family((tagged("<tool_calls>", "</tool_calls>"),))

HUNYUAN = Family((THINK, Block(("<answer>",), Prose.TEXT, ("</answer>",)), tagged("<tool_calls>", "</tool_calls>")))

PHI4_MINI = Family((Block(("functools",), JsonCalls()),))

XLAM = Family(
    (
        THINK,
        Block(("[TOOL_CALLS]",), JsonCalls()),
        tagged("<tool_call>", "</tool_call>"),
        Block(("```json",), JsonCalls(closes=("```",))),
    ),
    bare=JsonCalls(),
    bare_heads="[",
)

DEEPSEEK_V3 = Family(
    (
        THINK,
        Block(
            ("<｜tool▁calls▁begin｜>",),
            NamedCalls(
                opens=("<｜tool▁call▁begin｜>",),
                name=r"\s*(?:function<｜tool▁sep｜>)?(?P<name>[\w.-]+)\s*",
                name_ends=("```json",),
                after=("```",),
                call_closes=("<｜tool▁call▁end｜>",),
                closes=("<｜tool▁calls▁end｜>",),
            ),
        ),
    )
)
DEEPSEEK_V31 = Family(
    (
        THINK,
        Block(
            ("<｜tool▁calls▁begin｜>",),
            NamedCalls(
                opens=("<｜tool▁call▁begin｜>",),
                name_ends=("<｜tool▁sep｜>",),
                call_closes=("<｜tool▁call▁end｜>",),
                closes=("<｜tool▁calls▁end｜>",),
            ),
        ),
    )
)

KIMI_K2 = Family(
    (
        THINK,
        Block(
            ("<|tool_calls_section_begin|>",),
            NamedCalls(
                opens=("<|tool_call_begin|>",),
                name=r"\s*(?:functions\.)?(?P<name>[\w.-]+?)(?::\d+)?\s*",
                name_ends=("<|tool_call_argument_begin|>",),
                call_closes=("<|tool_call_end|>",),
                closes=("<|tool_calls_section_end|>",),
            ),
            within=(Prose.TEXT, Prose.REASONING),
        ),
    )
)

ERNIE45 = Family(
    (
        THINK,
        Block(("<response>",), Prose.TEXT, ("</response>",)),
        Block(("<tool_call>",), JsonCalls(closes=("</tool_call>",))),
    ),
    drops=("<0x0A>",),
)

LONGCAT = Family(
    (
        Block(("<longcat_think>",), Prose.REASONING, ("</longcat_think>",)),
        Block(("<longcat_tool_call>",), JsonCalls(closes=("</longcat_tool_call>",))),
    )
)

GIGACHAT3 = Family(
    (Block(("<|function_call|>", "function call<|role_sep|>\n"), JsonCalls()),), drops=("<|message_sep|>",)
)

APERTUS = Family(
    (
        Block(("<|inner_prefix|>",), Prose.REASONING, ("<|inner_suffix|>",)),
        Block(("<|tools_prefix|>",), JsonCalls(closes=("<|tools_suffix|>",), keys=ObjectKeys(name=()))),
    )
)

COHERE = Family(
    (
        Block(("<|START_THINKING|>",), Prose.REASONING, ("<|END_THINKING|>",)),
        Block(("<|START_RESPONSE|>", "<|START_TEXT|>"), Prose.TEXT, ("<|END_RESPONSE|>", "<|END_TEXT|>")),
        Block(
            ("<|START_ACTION|>",),
            JsonCalls(closes=("<|END_ACTION|>",), keys=ObjectKeys(name=("tool_name", "name"))),
        ),
    )
)

INKLING = Family(
    (
        Block(("<|content_thinking|>",), Prose.REASONING, ("<|end_message|>",)),
        Block(("<|content_text|>",), Prose.TEXT, ("<|end_message|>",)),
        Block(
            ("<|content_invoke_tool_json|>",),
            JsonCalls(closes=("<|end_message|>",), keys=ObjectKeys(arguments=("args", "arguments"))),
        ),
    ),
    drops=("<|message_model|>",),
)
