"""Tool calls and reasoning through a real server, whose model says what the user's last message says."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import pytest

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": CITY}},
    {"type": "function", "function": {"name": "now", "parameters": NOTHING}},
]
CALLS = [("get_weather", {"city": 'Orléans "<b>" 😀', "days": 3}), ("get_weather", {"city": "12\nb"}), ("now", {})]
MARKS = [
    "<|start|>",
    "<|end|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|call|>",
    "<|return|>",
    "[TOOL_CALLS]",
]
MARKS += ["<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"]
MARKS += ["<|tool_calls_section_end|>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"]
MARKS += ["<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"]
# Special tokens that a request spells are ordinary text in its prompt: the template writes those that are meant.
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if loop.last %}<|script|>{% endif %}{{ (message['content'] or '')"
    + "".join(f"|replace('⟦{number}⟧', '{mark}')" for number, mark in enumerate(MARKS))
    + " }}{% endfor %}{% if add_generation_prompt %}<|emit|>{% endif %}"
)
THINK = "<think>\nHm, 4 < 5.\n</think>\n\nOne moment.\n"
HARMONY = "<|channel|>analysis<|message|>Hm, 4 < 5.<|end|>"
HARMONY += "<|start|>assistant<|channel|>commentary<|message|>One moment.<|end|>"
FAMILIES = {
    "qwen3_coder": ("xml", THINK),
    "glm45": ("xml", THINK),
    "minimax_m2": ("xml", THINK),
    "step3p5": ("xml", THINK),
    "qwen3_json": ("json", THINK),
    "mistral": ("json", "[THINK]Hm, 4 < 5.[/THINK]One moment."),
    "deepseek_v31": ("json", THINK),
    "kimi_k2": ("json", THINK),
    "llama3_json": ("json", ""),
    "pythonic": ("python", ""),
    "gemma4": ("python", "<|channel>thought\nHm, 4 < 5.<channel|>One moment."),
}
FLAGS = ("--threads", "1", "--dtype", "float32", "--served-model-name", "scripted", "--max-model-len", "4096")

SWITCH = '''
"""Reads each request's answers as the family that the description of its first tool names."""

from importlib import import_module

from core.api import ToolParserSpec

__core_drivers__ = [
    ToolParserSpec(name="switch", impl="switch:switch", api=1, summary="Any family", special_tokens=True)
]
KINDS = ("json", "xml", "python", "reasoning")


def family(name):
    for kind in KINDS:
        for spec in vars(import_module(f"core_plugin_parsers_{kind}.manifest")).values():
            if isinstance(spec, ToolParserSpec) and spec.name == name:
                module, _, attribute = spec.impl.partition(":")
                return getattr(import_module(module), attribute)


def switch(ctx):
    name = ctx.tools[0]["function"]["description"] if ctx.tools else "qwen3_json"
    return family(name)(ctx)
'''


def written(name: str, calls=CALLS) -> str:
    """Return calls as the family writes them."""
    if name == "openai":
        module = import_module("core_plugin_parsers_reasoning.conformance")
        return "<|start|>assistant" + module._channels(calls)
    return import_module(f"core_plugin_parsers_{FAMILIES[name][0]}.conformance").WRITERS[name](calls)


@pytest.fixture(scope="module")
def scripts(scripted, tmp_path_factory):
    """A checkpoint of the scripted model whose tokenizer has special tokens for tags, and a response template."""
    _, plugin = scripted
    from core_plugin_parsers_hf.conformance import JSON_TEMPLATE

    folder = tmp_path_factory.mktemp("scripts")
    template = {**JSON_TEMPLATE, "start_anchor": "<|emit|>"}
    settings = {"response_template": template, "chat_template": CHAT_TEMPLATE}
    said = {"special": MARKS, "settings": settings, "positions": 4096}
    code = "import sys, json; from pathlib import Path; from acme_core_scripted.checkpoint import write_checkpoint"
    command = [sys.executable, "-c", f"{code}; write_checkpoint(Path(sys.argv[1]), **json.loads(sys.argv[2]))"]
    arguments = [*command, folder, json.dumps(said)]
    subprocess.run(arguments, check=True, timeout=60, env={"PYTHONPATH": plugin}, stdin=subprocess.DEVNULL)
    return str(folder), plugin


@pytest.fixture(scope="module")
def serve(launch, scripts):
    """`serve(*words)` starts a server of the scripted checkpoint and returns a client of it."""
    checkpoint, plugin = scripts
    clients = []

    def serve(*words: str):
        clients.append(launch(checkpoint, *FLAGS, *words, PYTHONPATH=plugin).wait_ready().http())
        return clients[-1]

    yield serve
    for client in clients:
        client.close()


@pytest.fixture(scope="module")
def switch(serve, tmp_path_factory):
    file = tmp_path_factory.mktemp("switch") / "switch.py"
    file.write_text(SWITCH, encoding="utf-8")
    return serve("--plugin-file", str(file), "--tool-parser", "switch")


@pytest.fixture(scope="module")
def kimi(serve):
    return serve("--tool-parser", "kimi_k2", "--structured-output", "auto")


def body(script: str, name: str = "", **fields):
    tools = [{**TOOLS[0], "function": {**TOOLS[0]["function"], "description": name}}, *TOOLS[1:]]
    if fields.pop("tokens", True):
        for number, mark in enumerate(MARKS):
            script = script.replace(mark, f"⟦{number}⟧")
    messages = [*fields.pop("history", ()), {"role": "user", "content": script}]
    return {"messages": messages, "tools": tools, "temperature": 0.0, "max_tokens": 1500, **fields}


def whole(http, sent):
    answer = http.post("/v1/chat/completions", json=sent)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def streamed(http, sent):
    """Return the choice that a client folds from the stream, and the deltas."""
    text = http.post("/v1/chat/completions", json={**sent, "stream": True}).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    pieces = [choice for line in lines[:-1] for choice in json.loads(line)["choices"]]
    message, calls, reason = {"role": "assistant", "content": "", "reasoning": ""}, {}, None
    for piece in pieces:
        delta, reason = piece["delta"], piece["finish_reason"] or reason
        message["content"] += delta.get("content") or ""
        message["reasoning"] += delta.get("reasoning") or ""
        for call in delta.get("tool_calls", ()):
            known = calls.get(call["index"])
            if known is None:  # id, type and name come once
                calls[call["index"]] = {key: call[key] for key in ("id", "type")} | {"function": dict(call["function"])}
            else:
                assert "id" not in call and "name" not in call["function"]
                known["function"]["arguments"] += call["function"]["arguments"]
    assert list(calls) == list(range(len(calls)))
    return {"message": message, "calls": list(calls.values()), "finish_reason": reason}


def plain(choice):
    """Return a choice without what differs from one request to the next."""
    message = choice["message"]
    calls = choice.get("calls", message.get("tool_calls") or [])
    assert len({call["id"] for call in calls}) == len(calls)
    functions = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    return message["content"] or "", message.get("reasoning") or "", functions, choice["finish_reason"]


@pytest.mark.covers("TOOL-01", "TOOL-02", "REASON-01")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_stream_of_any_grain_says_what_the_whole_answer_says(switch, name):
    script = FAMILIES[name][1] + written(name)
    answer = whole(switch, body(script, name))
    content, reasoning, calls, reason = plain(answer)
    assert [(called, json.loads(arguments)) for called, arguments in calls] == CALLS
    assert reason == "tool_calls"
    thinks = bool(FAMILIES[name][1])
    assert (content.strip(), reasoning.strip()) == (("One moment.", "Hm, 4 < 5.") if thinks else ("", ""))
    for interval in (1, 7):
        assert plain(streamed(switch, body(script, name, stream_interval=interval))) == plain(answer)


HOSTILE = ("<tool_call>" * 40, '{"name": "' + "{[" * 200, "[" * 300, "<think>" * 30 + "</think>", "\x00<|channel|>[f(")


@pytest.mark.covers("TOOL-02")
@pytest.mark.parametrize("name", ["qwen3_coder", "kimi_k2", "pythonic"])
def test_broken_answers_are_answers(switch, name):
    good = written(name)
    scripts = (*HOSTILE, good[: len(good) // 2], good[5:], good.replace('"', "'"), good[::-1])
    sent = [body(script, name) for script in scripts]
    with ThreadPoolExecutor(len(sent)) as pool:  # steps of many rows take hardly longer than those of one
        streams = pool.map(lambda one: streamed(switch, one), sent)
        answers = pool.map(lambda one: whole(switch, one), sent)
    for stream, answer in zip(streams, answers, strict=True):
        assert plain(stream) == plain(answer)
        for call in answer["message"].get("tool_calls") or ():
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert len(plain(whole(switch, body(good, name)))[2]) == len(CALLS)


@pytest.mark.covers("TOOL-01", "REASON-01")
def test_harmony_channels(serve):
    http = serve("--tool-parser", "openai")
    for script in (HARMONY + written("openai", CALLS[:1]), HARMONY.replace("commentary", "final")):
        script = script.removesuffix("<|call|>").removesuffix("<|end|>")  # where generation stops
        answer = whole(http, body(script))
        content, reasoning, calls, _ = plain(answer)
        assert (content, reasoning) == ("One moment.", "Hm, 4 < 5.")
        assert [json.loads(arguments) for _, arguments in calls] == ([CALLS[0][1]] if "commentary" in script else [])
        for interval in (1, 5):
            assert plain(streamed(http, body(script, stream_interval=interval))) == plain(answer)


@pytest.mark.covers("TOOL-01")
@pytest.mark.parametrize("name", ["mistral", "kimi_k2", "deepseek_v31"])
def test_tags_that_are_spelled_are_text(switch, name):
    """Special tokens are tags; the same characters as ordinary tokens are not."""
    script = f"One writes {written(name)} for a call."
    content, _, calls, _ = plain(whole(switch, body(script, name, tokens=False)))
    assert (content, calls) == (script, [])
    assert len(plain(whole(switch, body(script, name)))[2]) == len(CALLS)


@pytest.mark.covers("TOOL-01", "REASON-01")
def test_the_checkpoint_says_the_format(serve):
    http = serve("--tool-parser", "auto")
    script = THINK + "\n".join(
        f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>" for name, arguments in CALLS
    )
    answer = whole(http, body(script))
    assert plain(answer)[:2] == ("One moment.", "Hm, 4 < 5.")
    assert [(name, json.loads(arguments)) for name, arguments in plain(answer)[2]] == CALLS
    assert plain(streamed(http, body(script))) == plain(answer)
    # without tools the calls are text, and the thinking is still thinking
    sent = {key: value for key, value in body(script).items() if key != "tools"}
    content, reasoning, calls, reason = plain(whole(http, sent))
    assert "<tool_call>" in content and reasoning == "Hm, 4 < 5." and not calls and reason == "stop"


HISTORY = [
    {"role": "user", "content": "Hi"},
    {
        "role": "assistant",
        "reasoning": "Two of them.",
        "tool_calls": [
            {"id": f"functions.now:{number}", "type": "function", "function": {"name": "now", "arguments": "{}"}}
            for number in range(2)
        ],
    },
    *({"role": "tool", "tool_call_id": f"functions.now:{number}", "content": "12:00"} for number in range(2)),
]


def ids(choice):
    return [call["id"] for call in choice.get("calls", choice["message"].get("tool_calls"))]


@pytest.mark.covers("TOOL-03", "REASON-02")
def test_ids_go_on_where_the_conversation_stopped(kimi):
    sent = body(written("kimi_k2"), history=HISTORY)
    expected = ["functions.get_weather:2", "functions.get_weather:3", "functions.now:4"]
    assert ids(whole(kimi, sent)) == ids(streamed(kimi, sent)) == expected
    assert ids(whole(kimi, {**sent, "tool_choice": "required"})) == expected
    named = {"type": "function", "function": {"name": "now"}}
    assert ids(whole(kimi, {**sent, "tool_choice": named})) == ["functions.now:2"]


@pytest.mark.covers("TOOL-01")
def test_calls_are_enforced(kimi):
    """Whatever the model would rather say."""
    for script in ("I will not call anything.", THINK, written("kimi_k2", CALLS[2:])):
        for choice in ("required", {"type": "function", "function": {"name": "now"}}):
            tools = TOOLS[1:] if choice == "required" else TOOLS
            sent = {**body(script, tool_choice=choice, parallel_tool_calls=False), "tools": tools}
            answer = whole(kimi, sent)
            assert [name for name, _ in plain(answer)[2]] == ["now"]
            assert json.loads(plain(answer)[2][0][1]) == {}
            assert plain(streamed(kimi, sent)) == plain(answer)


@pytest.mark.covers("TOOL-01")
def test_how_many_and_whether(kimi):
    script = THINK + written("kimi_k2")
    assert len(plain(whole(kimi, body(script)))[2]) == 3
    assert len(plain(whole(kimi, body(script, parallel_tool_calls=False)))[2]) == 1
    content, _, calls, reason = plain(whole(kimi, body(script, tool_choice="none")))
    assert (calls, reason) == ([], "stop") and "get_weather" in content
    sent = body(script, tool_choice="required", response_format={"type": "json_object"})
    refused = kimi.post("/v1/chat/completions", json=sent)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tool_choice")


@pytest.mark.covers("TOOL-01")
def test_strict_tools_get_arguments_of_their_schema(kimi):
    schema = {**CITY, "properties": {"city": {"enum": ["Paris"]}, "days": {"enum": [3]}}, "additionalProperties": False}
    schema["required"] = ["city", "days"]
    strict = [{"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": schema}}]
    script = f"So: {written('kimi_k2', CALLS[:1])}"
    loose = plain(whole(kimi, body(script)))
    assert json.loads(loose[2][0][1])["city"] != "Paris"
    content, _, calls, _ = plain(whole(kimi, {**body(script, parallel_tool_calls=False), "tools": strict}))
    assert content.startswith("So:")
    ((name, arguments),) = calls
    assert (name, json.loads(arguments)) == ("get_weather", {"city": "Paris", "days": 3})
