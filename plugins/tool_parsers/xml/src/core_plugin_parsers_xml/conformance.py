"""Messages for the conformance kit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from core_plugin_parsers.samples import Arguments, Writer, call, calls_of, thought_and_calls, thoughts

from core.api import Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core.api.parsers import ParseEvent
from core_testing.conformance import ParserSample

Calls = Sequence[tuple[str, Arguments]]


def _bare(value: Any) -> str:
    """Write a value as models do between tags: texts as they are, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def functions(opens: str, closes: str, line: str = "\n", around: str = "") -> Writer:
    """Write `<function=f>` elements, each call between tags of its own; `around` is on both sides of a value."""

    def one(name: str, arguments: Arguments) -> str:
        pairs = [
            f"<parameter={key}>{around}{_bare(value)}{around}</parameter>{line}" for key, value in arguments.items()
        ]
        return f"{opens}{line}<function={name}>{line}{''.join(pairs)}</function>{line}{closes}"

    return lambda calls: "\n".join(one(*each) for each in calls)


def pairs(head: str = "<", tail: str = ">", separator: str = "", section: str = "") -> Writer:
    """Write keys and values between tags, which begin with `head` and end with `tail`."""

    def tagged(name: str, text: str) -> str:
        return f"{head}{name}{tail}{text}{head[0]}/{head[1:]}{name}{tail}"

    def one(name: str, arguments: Arguments) -> str:
        inner = [f"{tagged('arg_key', key)}\n{tagged('arg_value', _bare(value))}\n" for key, value in arguments.items()]
        return tagged("tool_call", f"{name}{separator}\n{''.join(inner)}")

    def write(calls: Calls) -> str:
        text = "\n".join(one(*each) for each in calls)
        return tagged(section, f"\n{text}\n") if section else text

    return write


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


def _step3(calls: Calls) -> str:
    found = []
    for name, arguments in calls:
        inner = [
            f'<steptml:parameter name="{key}">{_bare(value)}</steptml:parameter>' for key, value in arguments.items()
        ]
        call = f'<steptml:invoke name="{name}">{"".join(inner)}</steptml:invoke>'
        found.append(f"<｜tool_call_begin｜>function<｜tool_sep｜>{call}<｜tool_call_end｜>\n")
    return f"<｜tool_calls_begin｜>\n{''.join(found)}<｜tool_calls_end｜>"


def _minimax_m3(calls: Calls) -> str:
    mark = "]<]minimax[>["

    def element(name: str, value: Any) -> str:
        text = _bare(value)
        if isinstance(value, list) and value:
            text = "".join(element("item", one) for one in value)
        elif isinstance(value, dict) and value:
            text = "".join(element(*one) for one in value.items())
        return f"{mark}<{name}>{text}{mark}</{name}>"

    found = [
        f'{mark}<invoke name="{name}">\n{"".join(element(*one) for one in arguments.items())}\n{mark}</invoke>\n'
        for name, arguments in calls
    ]
    return f"{mark}<tool_call>\n{''.join(found)}{mark}</tool_call>"


def _kimi_k3(calls: Calls) -> str:
    kinds = {str: "string", bool: "boolean", dict: "object", list: "array"}
    found = []
    for number, (name, arguments) in enumerate(calls, 1):
        inner = [
            f'<|open|>argument key="{key}" type="{kinds.get(type(value), "number")}"<|sep|>{_bare(value)}'
            "<|close|>argument<|sep|>"
            for key, value in arguments.items()
        ]
        head = f'<|open|>call tool="{name}" index="{number}"<|sep|>'
        found.append(f"{head}{''.join(inner)}<|close|>call<|sep|>")
    return f"<|open|>tools<|sep|>{''.join(found)}<|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>"


def _muse(calls: Calls) -> str:
    write = invocations("<atem:function_calls>", "</atem:function_calls>", "atem:")
    return "<|eom|>".join(f"<|start|>assistant to={one[0]}<|message|>{write([one])}" for one in calls)


_QWEN = functions("<tool_call>", "</tool_call>", around="\n")
_VERBATIM = functions("<tool_call>", "</tool_call>", line="")
WRITERS: dict[str, Writer] = {
    "qwen3_coder": _QWEN,
    "qwen3_xml": _QWEN,
    "step3p5": _QWEN,
    "step5": _VERBATIM,
    "mimo": _VERBATIM,
    "seed_oss": functions("<seed:tool_call>", "</seed:tool_call>"),
    "glm45": pairs(),
    "glm47": pairs(),
    "ling3": pairs(),
    "poolside_v1": pairs(),
    "minimax_m2": invocations("<minimax:tool_call>", "</minimax:tool_call>"),
    "dots": invocations("<dots_function_call>", "</dots_function_call>"),
    "deepseek_v32": invocations("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "｜DSML｜", typed=True),
    "deepseek_v4": invocations("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "｜DSML｜", typed=True),
    "deepseek_v41": invocations("<｜DSML｜ calls>", "</｜DSML｜ calls>", "｜DSML｜ ", typed=True),
    "minicpm5": _minicpm,
    "step3": _step3,
    "minimax_m3": _minimax_m3,
    "kimi_k3": _kimi_k3,
    "k2_horizon": pairs("<ifm|", section="tool_calls"),
    "hy_v3": pairs(tail=":opensource>", separator="<tool_sep:opensource>", section="tool_calls"),
    "hy_v4": pairs(section="tool_calls"),
    "muse": _muse,
}
THINKING = {
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "minimax_m3": ("<mm:think>", "</mm:think>"),
    "kimi_k3": ("<|open|>think<|sep|>", "<|close|>think<|sep|><|open|>response<|sep|>"),
    "k2_horizon": ("<ifm|think_fast>", "</ifm|think_fast>"),
    "hy_v3": ("<think:opensource>", "</think:opensource>"),
    "muse": ("to=self<|message|>", "<|eom|><|start|>assistant to=user<|message|>"),
}
TAGS = {
    "k2_horizon": "<ifm|tool_call>",
    "hy_v3": "<tool_call:opensource>",
    "hy_v4": "<tool_call>",
    "muse": "<atem:function_calls>",
}
"""Tag that begins a call, by parser, where something is written in front of it that always has a meaning."""

ALIASES = {
    "glm": "glm45",
    "minimax-m2": "minimax_m2",
    "minimax-m3": "minimax_m3",
    "kimi-k3": "kimi_k3",
    "musespark1x": "muse",
    "muse_glimmer": "muse",
    "deepseekv32": "deepseek_v32",
    "deepseekv4": "deepseek_v4",
    "deepseekv41": "deepseek_v41",
}

_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "number": {"type": ["integer", "null"]}}}
TOOLS = ({"type": "function", "function": {"name": "f", "parameters": _SCHEMA}},)


def samples() -> Iterator[ParserSample]:
    """Yield calls of every family, its thoughts, typed values, and calls that break off."""
    for name in (*WRITERS, *ALIASES):
        family = ALIASES.get(name, name)
        write, think = WRITERS[family], THINKING.get(family, ("<think>", "</think>"))
        found = [
            *calls_of(write, around=name != "step3"),  # which thinks first
            *thoughts(*think),
            *thought_and_calls(*think, write, TAGS.get(family, "")),
            *_typed(write),
            *_broken(write),
        ]
        yield from (replace(sample, plugin=name) for sample in found)
    head, two = "<tool_call><function=f>", [*call(0, "f", {}), *call(1, "f", {})]
    yield ParserSample("the next call in place of an end", f"{head}<function=f>", two, plugin="qwen3_coder")
    yield from _particular()
    yield from _untagged()
    yield from _said()
    nothing = "<tool_call>\nI would call a tool.\n</tool_call>"
    yield ParserSample("tags around prose", nothing, [Text(nothing)], plugin="qwen3_coder")


def _untagged() -> Iterator[ParserSample]:
    """Yield calls whose outer tag is missing, and what only mentions the inner one."""
    outer = {
        "qwen3_coder": "<tool_call>\n",
        "mimo": "<tool_call>",
        "seed_oss": "<seed:tool_call>\n",
        "minimax_m2": "<minimax:tool_call>\n",
        "dots": "<dots_function_call>\n",
        "deepseek_v32": "<｜DSML｜function_calls>\n",
        "deepseek_v4": "<｜DSML｜tool_calls>\n",
        "deepseek_v41": "<｜DSML｜ calls>\n",
    }
    for name, opens in outer.items():
        whole = WRITERS[name]([("f", {"text": "x\n"})])
        text, events = whole.removeprefix(opens), call(0, "f", {"text": "x\n"})
        yield ParserSample("without the outer tag", f"So:\n{text}", [Text("So:"), *events], plugin=name)
        early = f"<think>Hm.{text}</think>Yes."
        thought = early if name != "seed_oss" else early.replace("think>", "seed:think>")
        found = [Reasoning("Hm."), *events, Text("Yes.")]
        yield ParserSample("without the outer tag, in the thinking", thought, found, plugin=name)
    for said in ("<function=f> is a tag.", "Is <function=f g> one?\n", "<function=>", "<function=<function=f"):
        yield ParserSample(f"no call: {said}", said, [Text(said)], plugin="qwen3_coder")


def _said() -> Iterator[ParserSample]:
    """Yield values of which the message says that they are texts, or are none, where the schema says otherwise."""
    given = {"count": ("true", "3"), "ratio": ("true", "0.5"), "text": ("false", "12"), "flag": ("true", "yes")}
    kinds = {"count": "integer", "ratio": "float", "text": "string", "flag": "boolean"}
    inner = "".join(
        f'<｜DSML｜parameter name="{key}" string="{said}">{value}</｜DSML｜parameter>\n'
        for key, (said, value) in given.items()
    )
    text = f'<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n{inner}</｜DSML｜invoke>\n</｜DSML｜function_calls>'
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in kinds.items()}}
    tools = ({"type": "function", "function": {"name": "f", "parameters": schema}},)
    events = call(0, "f", {"count": 3, "ratio": 0.5, "text": "12", "flag": "yes"})
    yield ParserSample("the schema against the message", text, events, tools, plugin="deepseek_v32")
    stretch = '<function name="f"><param name="text">\n<![CDATA[\n<b>\n]]>\n</param></function>'
    yield ParserSample("around CDATA", stretch, call(0, "f", {"text": "\n<b>\n"}), plugin="minicpm5")


def _particular() -> Iterator[ParserSample]:
    typed = "<ifm|arg_key>a</ifm|arg_key><ifm|arg_type>string</ifm|arg_type><ifm|arg_value>12</ifm|arg_value>"
    events = call(0, "f", {"a": "12"})
    yield ParserSample("typed values", f"<ifm|tool_call>f{typed}</ifm|tool_call>", events, plugin="k2_horizon")
    text = '<ifm|tool_calls><ifm|tool_call>{"name": "f", "arguments": {"a": "12"}}</ifm|tool_call></ifm|tool_calls>'
    yield ParserSample("JSON", text, events, plugin="k2_horizon")
    answer = "to=user<|message|>To be, or to=self<|eot|>"
    yield ParserSample("an answer", answer, [Text("To be, or to=self")], plugin="muse")
    yield ParserSample("no header", "to=user, he said", [Text("to=user, he said")], plugin="muse")
    first = f"to=f<|message|>{_muse([('f', {'a': 'x'})]).partition('<|message|>')[2]}"
    yield ParserSample("a call first", first, call(0, "f", {"a": "x"}), plugin="muse")


def _typed(write: Writer) -> Iterator[ParserSample]:
    """Yield values that the tool's schema decides about: `12` is a text for one parameter, a number for another."""
    events: list[ParseEvent] = [ToolStart(0, "f"), ToolArguments(0, '{"text": "12", "number": 12}'), ToolEnd(0)]
    yield ParserSample("types of the schema", write([("f", {"text": "12", "number": 12})]), events, TOOLS)


def _broken(write: Writer) -> Iterator[ParserSample]:
    whole = write([("get_weather", {"city": "Paris"})])
    yield ParserSample(
        "a call that breaks off", whole[: whole.index("Paris") + 3], call(0, "get_weather", {"city": "Par"})
    )
