"""Messages for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from core_plugin_parsers.samples import PLAIN, Arguments, call, calls_of, dumped, thoughts

from core.api import Reasoning, Text
from core_testing.conformance import ParserSample

TAGS = {
    "deepseek_r1": ("<think>", "</think>"),
    "qwen3": ("<think>", "</think>"),
    "nemotron_v3": ("<think>", "</think>"),
    "holo2": ("<think>", "</think>"),
    "minicpmv": ("<think>", "</think>"),
    "granite_thinking_parser": ("<think>", "</think>"),
    "deepseek-r1": ("<think>", "</think>"),
    "qwen3-thinking": ("<think>", "</think>"),
    "minimax": ("<think>", "</think>"),
    "deepseek-v3": ("<think>", "</think>"),
    "nano_v3": ("<think>", "</think>"),
    "kimi": ("◁think▷", "◁/think▷"),
}
FIRST = {"deepseek_r1", "deepseek-r1", "qwen3-thinking", "minimax"}
APPENDED = ("minimax_m2_append_think", "minimax-append-think")


def _channels(calls: Sequence[tuple[str, Arguments]]) -> str:
    return "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{dumped(arguments)}<|call|>"
        for name, arguments in calls
    )


def samples() -> Iterator[ParserSample]:
    """Yield thoughts of every family, and Harmony's messages."""
    for name, tags in TAGS.items():
        yield from (replace(sample, plugin=name) for sample in thoughts(*tags))
    for name in FIRST:
        yield ParserSample("thinks first", "Hm.\n</think>\n\nYes.", [Reasoning("Hm."), Text("Yes.")], plugin=name)
        yield ParserSample("thinks to the end", "Hm, wait", [Reasoning("Hm, wait")], plugin=name)
    for name in APPENDED:
        for text in ("Hm.\n</think>\n\nYes.", "<think>Hm.</think>Yes.", "Yes."):
            yield ParserSample("the thinking stays", text, [Text(text)], in_reasoning=True, plugin=name)
    for name in ("openai", "openai_gptoss", "gpt-oss"):
        yield from (replace(sample, plugin=name) for sample in _harmony())


def _harmony() -> Iterator[ParserSample]:
    yield from calls_of(_channels, around=False)
    final = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"
    yield ParserSample("an answer", final, [Reasoning("Hm."), Text("Yes.")])
    preamble = "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant" + _channels([("get_weather", PLAIN)])
    yield ParserSample("a preamble and a call", preamble, [Text("Wait."), *call(0, "get_weather", PLAIN)])
    other = (
        f"<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{dumped(PLAIN)}<|call|>"
    )
    yield ParserSample("the recipient first", other, call(0, "f", PLAIN))
