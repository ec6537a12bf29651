"""`auto` and `hf`: the checkpoint says how its messages are written, or nobody guesses."""

from __future__ import annotations

import io
import json

import pytest
import tokenizers

from core.cli.main import main
from core.selection.parsers import FormatFacts

TEMPLATE = {
    "start_anchor": "<|assistant|>",
    "fields": {
        "content": {},
        "thinking": {"open": "<why>", "close": "</why>"},
        "tool_calls": {
            "open": "<do>",
            "close": "</do>",
            "content": "json",
            "transform": {"function": {"name": "{content.tool}", "arguments": "{content.with}"}},
        },
    },
}
OUTPUT = '<why>hm</why>Look: <do>{"tool": "f", "with": {"a": 5}}</do>'
CHAT_TEMPLATE = "{% for m in messages %}<tool_call><function=f>{{ m.content }}{% endfor %}"


@pytest.fixture
def parse(monkeypatch, capsys):
    def run(*args, text=OUTPUT):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        status = main(["plugins", "parse", *map(str, args)])
        out, err = capsys.readouterr()
        return status, json.loads(out) if status == 0 else None, err

    return run


@pytest.fixture
def checkpoint(tmp_path):
    def write(**config):
        tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, [])).save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        return tmp_path

    return write


@pytest.mark.covers("TOOL-01", "REASON-01")
@pytest.mark.parametrize("name", ["auto", "hf", "beam", "response_template"])
def test_the_response_template_is_followed(parse, checkpoint, name):
    status, found, err = parse(name, "--model", checkpoint(response_template=TEMPLATE))
    assert status == 0, err
    assert found["message"] == {
        "role": "assistant",
        "content": "Look:",
        "reasoning": "hm",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": '{"a": 5}'}}],
    }


def test_reasoning_alone(parse, checkpoint):
    _, found, _ = parse("--reasoning", "auto", "--model", checkpoint(response_template=TEMPLATE))
    assert found["message"]["reasoning"] == "hm" and "<do>" in found["message"]["content"]


def test_nothing_is_guessed(parse, checkpoint):
    status, _, err = parse("auto", "--model", checkpoint(chat_template=CHAT_TEMPLATE))
    assert status != 0 and "CORE-C118" in err
    assert "hermes" in err and "qwen3_coder" in err and "mistral" not in err


def test_what_the_checkpoint_does_not_say_cannot_be_had(parse, checkpoint):
    status, _, err = parse("hf", "--model", checkpoint())
    assert status != 0 and "no response_template" in err


def test_a_template_that_cannot_be_used(parse, checkpoint):
    status, _, err = parse("hf", "--model", checkpoint(response_template={"version": 9}))
    assert status != 0 and "CORE-M145" in err


def test_facts_of_files_that_are_missing_or_broken(tmp_path):
    assert FormatFacts.of(tmp_path) == FormatFacts()
    (tmp_path / "tokenizer_config.json").write_text("{")
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    assert FormatFacts.of(tmp_path) == FormatFacts()
    (tmp_path / "chat_template.jinja").write_text("<think>")
    assert FormatFacts.of(tmp_path / "nowhere") == FormatFacts()
    assert FormatFacts.of(tmp_path).chat_template == "<think>"
