from __future__ import annotations

import io
import json

import pytest

from core.cli.main import main

CALL = "<tool_call>\n<function=f>\n<parameter=a>\n5\n</parameter>\n</function>\n</tool_call>"
OUTPUT = f"<think>\nhm\n</think>\n\nLook: {CALL}"


@pytest.fixture
def parse(monkeypatch, capsys):
    def run(*args, text=OUTPUT):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        status = main(["plugins", "parse", *map(str, args)])
        out, err = capsys.readouterr()
        return status, json.loads(out) if status == 0 else None, err

    return run


def test_events_and_message(parse):
    status, found, _ = parse("qwen3_coder")
    assert status == 0
    assert found["message"] == {
        "role": "assistant",
        "content": "Look:",
        "reasoning": "hm",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": '{"a": 5}'}}],
    }
    assert [event["event"] for event in found["events"]][:2] == ["Reasoning", "Text"]


@pytest.mark.covers("TOOL-01")
def test_a_split_text_gives_the_same_message(parse):
    whole = parse("qwen3_coder")[1]["message"]
    assert [parse("qwen3_coder", "--split", seed)[1]["message"] for seed in range(8)] == [whole] * 8


def test_the_tools_schema_decides_about_types(parse, tmp_path):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"type": "function", "function": {"name": "f", "parameters": schema}}]))
    _, found, _ = parse("qwen3_coder", "--tools", file)
    assert found["message"]["tool_calls"][0]["function"]["arguments"] == '{"a": "5"}'


@pytest.mark.covers("REASON-01")
def test_a_reasoning_parser_alone_and_in_front(parse):
    alone = parse("--reasoning", "deepseek_r1")[1]["message"]
    assert alone["reasoning"] == "hm" and alone["content"].startswith("Look: <tool_call>")
    both = parse("hermes", "--reasoning", "deepseek_r1", text='hm</think>a<tool_call>{"name": "f"}</tool_call>')[1]
    assert both["message"]["reasoning"] == "hm" and both["message"]["content"] == "a"
    assert both["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    begun = parse("hermes", "--in-reasoning", text="hm</think>a")[1]
    assert begun["message"] == {"role": "assistant", "content": "a", "reasoning": "hm"}


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ((), "CORE-C116"),
        (("deepseek_r1",), "CORE-P201"),
        (("qwen3_codr",), "qwen3_coder"),
        (("--reasoning", "jamba"), "P201"),
    ],
)
def test_what_cannot_parse_is_said(parse, args, code):
    status, _, error = parse(*args)
    assert status != 0 and code in error


@pytest.mark.parametrize("content", ["{", "{}", "[1]"])
def test_a_file_without_tools(parse, tmp_path, content):
    file = tmp_path / "tools.json"
    file.write_text(content)
    status, _, error = parse("hermes", "--tools", file)
    assert status != 0 and "CORE-C117" in error
