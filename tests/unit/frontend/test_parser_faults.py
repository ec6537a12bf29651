"""A parser that fails, or gives what is no parse event, ends its own answer, by name."""

from __future__ import annotations

import pytest

from core.api.errors import PluginError
from core.api.parsers import Text
from core.frontend.answering.reader import AnswerReader
from core.frontend.results import CompletionOutput


class Parser:
    def feed(self, text, token_ids=()):
        return [Text(text)]

    def finish(self):
        return [Text("!")]


def fail(*given):
    raise KeyError("boom")


def said(text, end=None):
    return CompletionOutput(0, text, finish_reason=end)


@pytest.mark.parametrize(
    ("method", "answer", "told"),
    [
        ("feed", fail, "KeyError: 'boom'"),
        ("finish", fail, "KeyError: 'boom'"),
        ("feed", lambda text, ids: [text], "a str is no parse event"),
        ("feed", lambda text, ids: text, "a str is no parse event"),
        ("finish", lambda: ["rest"], "a str is no parse event"),
        ("feed", lambda text, ids: None, "TypeError"),
    ],
)
def test_a_parser_that_fails_is_named(method, answer, told):
    parser = Parser()
    setattr(parser, method, answer)
    reader = AnswerReader(parser, calls=True, owner="tool parser 'odd' (acme 1.0)")
    with pytest.raises(PluginError, match=r"CORE-P108 tool parser 'odd' \(acme 1.0\): .*") as caught:
        reader.read(said("text", "stop"))
    assert told in caught.value.message


def test_a_sound_parser_is_read():
    assert AnswerReader(Parser(), calls=True).read(said("text", "stop")) == [Text("text"), Text("!")]
