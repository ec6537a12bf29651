"""Families whose calls are JSON."""

from __future__ import annotations

from dataclasses import replace

from core_plugin_parsers import Block, Either, Family, JsonCalls, NamedCalls, Prose, Written
from core_plugin_parsers.json_object import ObjectKeys

THINK = Block(("<think>",), Prose.REASONING, ("</think>",))
BRACKET_THINK = Block(("[THINK]",), Prose.REASONING, ("[/THINK]",))


def written(
    opens: str, closes: str, *, keys: tuple[str, str] = ("name", "arguments"), between: str | None = "\n"
) -> Written:
    """Return how calls are written as objects, each between tags."""
    name, arguments = keys
    return Written(f'{opens}{{"{name}": "{{name}}", "{arguments}": ', f"}}{closes}", between=between)


def listed(opens: str, closes: str, *, keys: tuple[str, str] = ("name", "arguments")) -> Written:
    """Return how calls are written as one array."""
    return replace(written("", "", keys=keys, between=", "), opens=f"{opens}[", closes=f"]{closes}")


def tagged(opens: str, closes: str) -> Block:
    """Return a block of one object, or of an array of them, between tags."""
    return Block((opens,), JsonCalls(closes=(closes,), several=True, separators=",;"))


HERMES = Family(
    (THINK, Block(("<tool_call>",), JsonCalls(closes=("</tool_call>",)))),
    written=written("<tool_call>\n", "\n</tool_call>"),
)

_LLAMA = JsonCalls(several=True, separators=";", keys=ObjectKeys(beside=("type", "id")))
LLAMA3 = Family(
    (Block(("<|python_tag|>",), _LLAMA),),
    bare=_LLAMA,
    bare_heads="{",
    bare_anywhere=True,
    drops=("<|eom_id|>",),
    written=written("", "", keys=("name", "parameters"), between="; "),
)

_MISTRAL_NAMED = NamedCalls(name=r"\s*(?P<name>[\w.-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*", single=True)
MISTRAL = Family(
    (BRACKET_THINK, Block(("[TOOL_CALLS]",), Either({"[": JsonCalls()}, _MISTRAL_NAMED))),
    written=listed("[TOOL_CALLS]", ""),
)

GRANITE = Family(
    (
        Block(
            ("Here is my thought process:", "Here's my thought process:"),
            Prose.REASONING,
            ("Here is my response:", "Here's my response:"),
        ),
        Block(("<|tool_call|>",), JsonCalls()),
        tagged("<tool_call>", "</tool_call>"),
    ),
    written=listed("<|tool_call|>", ""),
)
GRANITE_20B = Family(
    (Block(("<function_call>",), JsonCalls()),),
    written=written("<function_call> ", ""),
)

INTERNLM = Family(
    (Block(("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"), JsonCalls(("<|action_end|>",))),),
    written=written("<|action_start|><|plugin|>\n", "<|action_end|>", keys=("name", "parameters")),
)

JAMBA = Family(
    (tagged("<tool_calls>", "</tool_calls>"),),
    written=listed("<tool_calls>", "</tool_calls>"),
)

HUNYUAN = Family(
    (THINK, Block(("<answer>",), Prose.TEXT, ("</answer>",)), tagged("<tool_calls>", "</tool_calls>")),
    written=listed("<tool_calls>", "</tool_calls>"),
)

PHI4_MINI = Family(
    (Block(("functools",), JsonCalls()),),
    written=listed("functools", ""),
)

XLAM = Family(
    (
        THINK,
        Block(("[TOOL_CALLS]",), JsonCalls()),
        tagged("<tool_call>", "</tool_call>"),
        Block(("```json",), JsonCalls(closes=("```",))),
    ),
    bare=JsonCalls(),
    bare_heads="[",
    written=listed("", ""),
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
    ),
    written=Written(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
        "\n```<｜tool▁call▁end｜>",
        opens="<｜tool▁calls▁begin｜>",
        closes="<｜tool▁calls▁end｜>",
        between="\n",
    ),
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
    ),
    written=Written(
        "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        opens="<｜tool▁calls▁begin｜>",
        closes="<｜tool▁calls▁end｜>",
    ),
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
        ),
    ),
    written=Written(
        "<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        opens="<|tool_calls_section_begin|>",
        closes="<|tool_calls_section_end|>",
    ),
)

ERNIE45 = Family(
    (
        THINK,
        Block(("<response>",), Prose.TEXT, ("</response>",)),
        Block(("<tool_call>",), JsonCalls(closes=("</tool_call>",))),
    ),
    drops=("<0x0A>",),
    written=written("<tool_call>\n", "\n</tool_call>"),
)

LONGCAT = Family(
    (
        Block(("<longcat_think>",), Prose.REASONING, ("</longcat_think>",)),
        Block(("<longcat_tool_call>",), JsonCalls(closes=("</longcat_tool_call>",))),
    ),
    written=written("<longcat_tool_call>", "</longcat_tool_call>"),
)

GIGACHAT3 = Family(
    (Block(("<|function_call|>", "function call<|role_sep|>\n"), JsonCalls()),),
    drops=("<|message_sep|>",),
    written=written("<|function_call|>", "", between=None),
)

APERTUS = Family(
    (
        Block(("<|inner_prefix|>",), Prose.REASONING, ("<|inner_suffix|>",)),
        Block(("<|tools_prefix|>",), JsonCalls(closes=("<|tools_suffix|>",), keys=ObjectKeys(name=()))),
    ),
    written=Written('{"{name}": ', "}", opens="<|tools_prefix|>[", closes="]<|tools_suffix|>", between=", "),
)

COHERE = Family(
    (
        Block(("<|START_THINKING|>",), Prose.REASONING, ("<|END_THINKING|>",)),
        Block(("<|START_RESPONSE|>", "<|START_TEXT|>"), Prose.TEXT, ("<|END_RESPONSE|>", "<|END_TEXT|>")),
        Block(
            ("<|START_ACTION|>",),
            JsonCalls(closes=("<|END_ACTION|>",), keys=ObjectKeys(name=("tool_name", "name"))),
        ),
    ),
    written=listed("<|START_ACTION|>\n", "\n<|END_ACTION|>", keys=("tool_name", "parameters")),
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
    written=written("<|content_invoke_tool_json|>", "<|end_message|>", keys=("name", "args")),
)

PLAMO3 = Family(
    (
        Block(("<|plamo:begin_think:plamo|>",), Prose.REASONING, ("<|plamo:end_think:plamo|>",)),
        Block(
            ("<|plamo:begin_tool_requests:plamo|>",),
            NamedCalls(
                opens=("<|plamo:begin_tool_request:plamo|>",),
                name=(
                    r"\s*<\|plamo:begin_tool_name:plamo\|>\s*+(?P<name>[^<]*[^<\s])\s*<\|plamo:end_tool_name:plamo\|>"
                    r"\s*<\|plamo:begin_tool_arguments:plamo\|>(?:<\|plamo:constrain\|>json)?"
                ),
                name_ends=("<|plamo:msg|>",),
                after=("<|plamo:end_tool_arguments:plamo|>",),
                call_closes=("<|plamo:end_tool_request:plamo|>",),
                closes=("<|plamo:end_tool_requests:plamo|>",),
            ),
        ),
    ),
    drops=("<|plamo:tag|>",),
    written=Written(
        "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>{name}<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>",
        "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
        opens="<|plamo:begin_tool_requests:plamo|>",
        closes="<|plamo:end_tool_requests:plamo|>",
    ),
)
