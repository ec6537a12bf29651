"""Messages for the conformance kit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from core_plugin_parsers.samples import Arguments, Writer, call, calls_of, thought_and_calls, thoughts

from core.api import Text, ToolArguments, ToolEnd, ToolStart
from core.testing.conformance import ParserSample

Calls = Sequence[tuple[str, Arguments]]


def _bare(value: Any) -> str:
    """Write a value as models do between tags: texts as they are, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def functions(opens: str, closes: str, line: str = "\n") -> Writer:
    """Write `<function=f>` elements, each call between tags of its own."""

    def one(name: str, arguments: Arguments) -> str:
        pairs = [f"<parameter={key}>{line}{_bare(value)}{line}</parameter>{line}" for key, value in arguments.items()]
        return f"{opens}{line}<function={name}>{line}{''.join(pairs)}</function>{line}{closes}"

    return lambda calls: "\n".join(one(*each) for each in calls)


def pairs(calls: Calls) -> str:
    """Write keys and values between tags."""
    found = []
    for name, arguments in calls:
        inner = [
            f"<arg_key>{key}</arg_key>\n<arg_value>{_bare(value)}</arg_value>\n" for key, value in arguments.items()
        ]
        found.append(f"<tool_call>{name}\n{''.join(inner)}</tool_call>")
    return "\n".join(found)


def invocations(opens: str, closes: str, prefix: str = "", *, typed: bool = False) -> Writer:
    """Write `<invoke name="f">` elements in one block; `typed` ones say which values are texts."""

    def parameter(key: str, value: Any) -> str:
        said = f' string="{str(isinstance(value, str)).lower()}"' if typed else ""
        return f'<{prefix}parameter name="{key}"{said}>{_bare(value)}</{prefix}parameter>\n'

    def write(calls: Calls) -> str:
        every = [
            f'<{prefix}invoke name="{name}">\n{"".join(parameter(*one) for one in arguments.items())}</{prefix}invoke>'
            for name, arguments in calls
        ]
        return f"{opens}\n" + "\n".join(every) + f"\n{closes}"

    return write


def _minicpm(calls: Calls) -> str:
    found = []
    for name, arguments in calls:
        inner = [f'<param name="{key}"><![CDATA[{_bare(value)}]]></param>' for key, value in arguments.items()]
        found.append(f'<function name="{name}">{"".join(inner)}</function>')
    return "\n".join(found)


_QWEN = functions("<tool_call>", "</tool_call>")
_VERBATIM = functions("<tool_call>", "</tool_call>", line="")
WRITERS: dict[str, Writer] = {
    "qwen3_coder": _QWEN,
    "qwen3_xml": _QWEN,
    "step3p5": _QWEN,
    "step5": _VERBATIM,
    "mimo": _VERBATIM,
    "seed_oss": functions("<seed:tool_call>", "</seed:tool_call>"),
    "glm45": pairs,
    "glm47": pairs,
    "ling3": pairs,
    "poolside_v1": pairs,
    "minimax_m2": invocations("<minimax:tool_call>", "</minimax:tool_call>"),
    "dots": invocations("<dots_function_call>", "</dots_function_call>"),
    "deepseek_v32": invocations("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "｜DSML｜", typed=True),
    "deepseek_v4": invocations("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "｜DSML｜", typed=True),
    "deepseek_v41": invocations("<｜DSML｜ calls>", "</｜DSML｜ calls>", "｜DSML｜ ", typed=True),
    "minicpm5": _minicpm,
}

_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "number": {"type": ["integer", "null"]}}}
TOOLS = ({"type": "function", "function": {"name": "f", "parameters": _SCHEMA}},)


def samples() -> Iterator[ParserSample]:
    """Yield calls of every family, its thoughts, typed values, and calls that break off."""
    for name, write in WRITERS.items():
        think = ("<seed:think>", "</seed:think>") if name == "seed_oss" else ("<think>", "</think>")
        found = [
            *calls_of(write),
            *thoughts(*think),
            *thought_and_calls(*think, write),
            *_typed(write),
            *_broken(write),
        ]
        yield from (replace(sample, plugin=name) for sample in found)
    head, two = "<tool_call><function=f>", [*call(0, "f", {}), *call(1, "f", {})]
    yield ParserSample("the next call in place of an end", f"{head}<function=f>", two, plugin="qwen3_coder")
    nothing = "<tool_call>\nI would call a tool.\n</tool_call>"
    yield ParserSample("tags around prose", nothing, [Text(nothing)], plugin="qwen3_coder")


def _typed(write: Writer) -> Iterator[ParserSample]:
    """Yield values that the tool's schema decides about: `12` is a text for one parameter, a number for another."""
    events = [ToolStart(0, "f"), ToolArguments(0, '{"text": "12", "number": 12}'), ToolEnd(0)]
    yield ParserSample("types of the schema", write([("f", {"text": "12", "number": 12})]), events, TOOLS)


def _broken(write: Writer) -> Iterator[ParserSample]:
    whole = write([("get_weather", {"city": "Paris"})])
    yield ParserSample(
        "a call that breaks off", whole[: whole.index("Paris") + 3], call(0, "get_weather", {"city": "Par"})
    )
