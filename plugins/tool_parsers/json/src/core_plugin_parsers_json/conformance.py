"""Messages for the conformance kit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from core_plugin_parsers.samples import (
    NESTED,
    PLAIN,
    Arguments,
    Writer,
    call,
    calls_of,
    dumped,
    named,
    thought_and_calls,
    thoughts,
)

from core.api import Reasoning, Text
from core.api.parsers import ParseEvent
from core_testing.conformance import ParserSample

Calls = Sequence[tuple[str, Arguments]]


def each(opens: str, closes: str, *, key: str = "arguments", between: str = "\n") -> Writer:
    """Write every call between tags of its own."""
    return lambda calls: between.join(f"{opens}{named(*one, key=key)}{closes}" for one in calls)


def array(opens: str, closes: str = "", *, key: str = "arguments", name: str = "name") -> Writer:
    """Write all calls as one array."""

    def write(calls: Calls) -> str:
        objects = [{name: tool, key: arguments} for tool, arguments in calls]
        return f"{opens}{json.dumps(objects, ensure_ascii=False)}{closes}"

    return write


def prefixed(opens: str, head: str, separator: str, tail: str, closes: str) -> Writer:
    """Write every call as its name and its arguments, all of them in one block."""

    def write(calls: Calls) -> str:
        return opens + "".join(f"{head}{name}{separator}{dumped(values)}{tail}" for name, values in calls) + closes

    return write


def _kimi(calls: Calls) -> str:
    every = [
        f"<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>{dumped(values)}<|tool_call_end|>"
        for number, (name, values) in enumerate(calls)
    ]
    return "<|tool_calls_section_begin|>" + "".join(every) + "<|tool_calls_section_end|>"


def _apertus(calls: Calls) -> str:
    return (
        f"<|tools_prefix|>{json.dumps([{name: values} for name, values in calls], ensure_ascii=False)}<|tools_suffix|>"
    )


WRITERS: dict[str, Writer] = {
    "qwen3_json": each("<tool_call>\n", "\n</tool_call>"),
    "llama3_json": each("", "", key="parameters", between="; "),
    "llama4_json": each("", "", key="parameters", between=";"),
    "mistral": array("[TOOL_CALLS]"),
    "granite": array("<|tool_call|>"),
    "granite4": each("<tool_call>\n", "\n</tool_call>"),
    "granite-20b-fc": each("<function_call> ", ""),
    "internlm": each("<|action_start|><|plugin|>\n", "<|action_end|>", key="parameters"),
    "jamba": array("<tool_calls>", "</tool_calls>"),
    "hunyuan_a13b": array("<tool_calls>", "</tool_calls>"),
    "phi4_mini_json": array("functools"),
    "xlam": array(""),
    "deepseek_v3": prefixed(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        "\n```json\n",
        "\n```<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ),
    "deepseek_v31": prefixed(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ),
    "plamo3": prefixed(
        "<|plamo:begin_tool_requests:plamo|>",
        "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",
        "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>",
        "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
        "<|plamo:end_tool_requests:plamo|>",
    ),
    "kimi_k2": _kimi,
    "ernie45": each("<tool_call>\n", "\n</tool_call>"),
    "longcat": each("<longcat_tool_call>", "</longcat_tool_call>"),
    "gigachat3": each("<|function_call|>", ""),
    "apertus": _apertus,
    "cohere_command3": array("<|START_ACTION|>\n", "\n<|END_ACTION|>", key="parameters", name="tool_name"),
    "cohere_command4": array("<|START_ACTION|>\n", "\n<|END_ACTION|>", key="parameters", name="tool_name"),
    "inkling": each("<|content_invoke_tool_json|>", "<|end_message|>", key="args"),
}

ALIASES = {
    "qwen": "qwen3_json",
    "qwen25": "qwen3_json",
    "trinity": "qwen3_json",
    "llama3": "llama3_json",
    "interns1": "internlm",
    "deepseekv3": "deepseek_v3",
    "deepseekv31": "deepseek_v31",
}

_THINK = ("<think>", "</think>")
THINKING = {
    "qwen3_json": _THINK,
    "mistral": ("[THINK]", "[/THINK]"),
    "granite": ("Here is my thought process:", "Here is my response:"),
    "granite4": _THINK,
    "hunyuan_a13b": _THINK,
    "deepseek_v3": _THINK,
    "deepseek_v31": _THINK,
    "kimi_k2": _THINK,
    "ernie45": _THINK,
    "longcat": ("<longcat_think>", "</longcat_think>"),
    "apertus": ("<|inner_prefix|>", "<|inner_suffix|>"),
    "cohere_command3": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "inkling": ("<|content_thinking|>", "<|end_message|>"),
    "plamo3": ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
}

_BARE = {"llama3_json", "llama4_json", "xlam"}


def samples() -> Iterator[ParserSample]:
    """Yield calls of every family, its thoughts, and what is particular to it."""
    for name in (*WRITERS, *ALIASES):
        family = ALIASES.get(name, name)
        write = WRITERS[family]
        found = list(calls_of(write, around=family not in _BARE))
        if family in THINKING:
            found += [*thoughts(*THINKING[family]), *thought_and_calls(*THINKING[family], write)]
        yield from (replace(sample, plugin=name) for sample in (*found, *_broken(write)))
    yield from _particular()


def _broken(write: Writer) -> Iterator[ParserSample]:
    """Yield a call that breaks off in its last value: it is closed."""
    whole = write([("get_weather", {"city": "Paris"})])
    yield ParserSample(
        "a call that breaks off", whole[: whole.index("Paris") + 3], call(0, "get_weather", {"city": "Par"})
    )


def _particular() -> Iterator[ParserSample]:
    two = [*call(0, "get_weather", PLAIN), *call(1, "search", NESTED)]
    texts = {
        "mistral": [
            f"[TOOL_CALLS]get_weather{dumped(PLAIN)}[TOOL_CALLS]search{dumped(NESTED)}",
            f"[TOOL_CALLS]get_weather[ARGS]{dumped(PLAIN)}[TOOL_CALLS]search[CALL_ID]ab12[ARGS]{dumped(NESTED)}",
        ],
        "llama3_json": [f"<|python_tag|>{named('get_weather', PLAIN)};{named('search', NESTED, 'parameters')}"],
        "granite": [
            WRITERS["jamba"]([("get_weather", PLAIN), ("search", NESTED)]).replace("tool_calls>", "tool_call>")
        ],
        "xlam": [
            array("```json\n", "\n```")([("get_weather", PLAIN), ("search", NESTED)]),
            array("[TOOL_CALLS]")([("get_weather", PLAIN), ("search", NESTED)]),
        ],
        "deepseek_v3": [],
    }
    for name, variants in texts.items():
        for number, text in enumerate(variants):
            yield ParserSample(f"another spelling, {number + 1}", text, two, plugin=name)
    answer = "<think>\nHm.\n</think>\n<answer>\nIt is 5 < 6.\n</answer>"
    yield ParserSample("an answer", answer, [Reasoning("Hm."), Text("It is 5 < 6.")], plugin="hunyuan_a13b")
    response = "Hm.\n</think>\n\n<response>\nYes.\n</response>\n"
    events: list[ParseEvent] = [Reasoning("Hm."), Text("Yes.")]
    yield ParserSample("a response", response, events, in_reasoning=True, plugin="ernie45")
    blocks = "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>"
    yield ParserSample("blocks", blocks, events, plugin="cohere_command3")
    thought_first: list[ParseEvent] = [Reasoning("Hm."), *call(0, "get_weather", PLAIN)]
    early = f"<think>Hm.{_kimi([('get_weather', PLAIN)])}"
    yield ParserSample("a call that ends the thinking", early, thought_first, plugin="kimi_k2")
    behind = f"<think>Hm.</think>\n{WRITERS['xlam']([('get_weather', PLAIN)])}"
    yield ParserSample("calls behind thinking", behind, thought_first, plugin="xlam")
    yield from (replace(sample, plugin="llama3_json") for sample in _objects())


def _objects() -> Iterator[ParserSample]:
    """Yield calls behind a text without a tag, and objects that are none."""
    for data in (
        '{"city": "Paris"}',
        '{"name": "Paris", "parameter": 3}',
        'It is {"name": "Paris", "people": {"all": 2}} in JSON, {x} or { "name": ["f"] }.',
        '{"type": {"name": "f"}}',
        'Say {"name": "f"}.',
    ):
        yield ParserSample(f"no call: {data}", data, [Text(data)])
    one, two = call(0, "get_weather", PLAIN), call(1, "search", NESTED)
    text = named("get_weather", PLAIN, "parameters")
    yield ParserSample("behind a sentence", f"I use a tool {{it}}: {text}", [Text("I use a tool {it}:"), *one])
    both = f"Two calls:\n\n{text}; {named('search', NESTED)}\nDone."
    yield ParserSample("between sentences", both, [Text("Two calls:"), *one, *two, Text("Done.")])
    typed = f'So {{"type": "function", {text[1:]}'
    yield ParserSample("with its type", typed, [Text("So"), *one])
