"""How answers look while they come, on a terminal and elsewhere."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from core_plugin_chat.answer import MarkdownView, PlainView, blocks, complete_blocks, open_view
from core_plugin_chat.waiting import spinner
from rich.console import Console

from core.terminal.progress import RequestProgress

MARKDOWN = """# Title

A *paragraph*
of two lines.

- one
- two

  still two
- three

```python
def f():

    return 1
```

| a | b |
|---|---|
| 1 | 2 |

1. first

2. second

> quoted

the end
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def console(height=40):
    return Console(file=Terminal(), force_terminal=True, width=60, height=height, highlight=False, color_system=None)


def shown(view_console):
    """What is on the terminal in the end: the output with cursor movements carried out."""
    import re

    lines, row = [""], 0
    for token in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", view_console.file.getvalue()):
        if token == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif token == "\x1b[1A":
            row -= 1
        elif token == "\x1b[2K":
            lines[row] = ""
        elif token[0] not in "\x1b\r":
            lines[row] += token
    return "\n".join(line.rstrip() for line in lines).strip("\n")


@pytest.mark.parametrize(
    "blocks_",
    [
        ["one"],
        ["one\ntwo\n"],
        ["one\n\n", "two"],
        ["- a\n\n- b\n"],
        ["x\n", "```\na\n\nb\n"],
        ["# t\n", "a\n\n", "1. b\n\n2. c\n\n", "> d\n", "\ne"],
        [""],
    ],
)
def test_blocks(blocks_):
    found = blocks("".join(blocks_))
    assert [block.strip("\n") for block in found] == [block.strip("\n") for block in blocks_]
    assert "".join(found) == "".join(blocks_)


def test_what_is_kept_is_never_changed_by_what_follows():
    whole = blocks(MARKDOWN)
    assert len(whole) == 8
    for cut in range(len(MARKDOWN) + 1):
        done, rest = complete_blocks(MARKDOWN[:cut])
        assert done == whole[: len(done)]
        assert "".join(done) + rest == MARKDOWN[:cut]
    assert len(done) == 7


@pytest.mark.parametrize("size", [1, 3, 17, 1000])
def test_markdown_ends_up_the_same_in_any_pieces(size):
    whole, pieces = console(), console()
    for target, step in ((whole, len(MARKDOWN)), (pieces, size)):
        view = MarkdownView(reasoning=True, console=target)
        for start in range(0, len(MARKDOWN), step):
            view.text(MARKDOWN[start : start + step])
        view.close()
    text = shown(pieces)
    assert [line for line in text.splitlines() if line] == [line for line in shown(whole).splitlines() if line]
    for part in ("Title", "A paragraph of two lines.", "• one", "return 1", "first", "quoted", "the end"):
        assert text.count(part) == 1, part
    assert "\n\n\n" not in text


def test_a_block_higher_than_the_terminal_is_whole_in_the_end():
    target = console(height=10)
    view = MarkdownView(reasoning=True, console=target)
    text = "```\n" + "".join(f"line {index}\n" for index in range(50)) + "```\n"
    for start in range(0, len(text), 11):
        view.text(text[start : start + 11])
        view._live.refresh()
    view.close()
    final = [line.strip() for line in shown(target).splitlines() if line.strip()]
    assert final == [f"line {index}" for index in range(50)]


def test_reasoning_comes_first_and_notes_last():
    target = console()
    view = MarkdownView(reasoning=True, console=target)
    for text in ("let me ", "think\nabout", " it"):
        view.reasoning(text)
    view.text("**42**")
    view.close("stopped")
    assert [line for line in shown(target).splitlines() if line] == ["let me think", "about it", "42", "[stopped]"]
    hidden = console()
    view = MarkdownView(reasoning=False, console=hidden)
    view.reasoning("secret\nthoughts")
    view.text("42")
    view.close()
    assert shown(hidden) == "42"


def test_markdown_cannot_drive_the_terminal_or_hide_an_address():
    target = console()
    view = MarkdownView(reasoning=True, console=target)
    view.text("\x1b[2J\x07[here](http://evil.example) [red]x[/red] :smile:")
    view.close()
    raw = target.file.getvalue()
    assert "\x1b[2J" not in raw and "\x07" not in raw and "\x1b]8" not in raw
    assert "http://evil.example" in raw and "[red]x[/red] :smile:" in shown(target)


def test_a_view_is_closed_even_when_nothing_came():
    target = console()
    MarkdownView(reasoning=True, console=target).close("stopped")
    assert shown(target) == "[stopped]"


def test_plain_text_passes_as_it_is():
    out = io.StringIO()
    view = PlainView(out, reasoning=False)
    view.reasoning("hm")
    view.text("**a**\x1b[1m\n")
    view.text("b")
    view.close("stopped")
    assert out.getvalue() == "**a**[1m\nb\n"


def test_plain_reasoning_on_a_terminal_is_dim(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    view = PlainView(out, reasoning=True)
    view.reasoning("hm")
    view.reasoning(" so")
    view.text("a")
    view.close("stopped")
    assert out.getvalue() == "\x1b[2mhm so\x1b[0m\n\na [stopped]\n"


def frames(text):
    """How often the sign of waiting was drawn."""
    return text.count("waiting")


def test_an_answer_is_waited_for_until_its_first_text():
    target = console()
    view = MarkdownView(reasoning=False, console=target)
    view._live.refresh()
    assert frames(target.file.getvalue()) > 0
    view.reasoning("hidden")
    before = target.file.getvalue()
    view._live.refresh()
    assert frames(target.file.getvalue()[len(before) :]) > 0  # nothing is to be seen yet
    view.text("4")
    before = target.file.getvalue()
    view._live.refresh()
    view.close()
    assert frames(target.file.getvalue()[len(before) :]) == 0
    assert shown(target) == "4"


def test_plain_text_is_waited_for_on_a_terminal_alone(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    screens = {}
    for name, stream in (("terminal", Terminal()), ("pipe", io.StringIO())):
        monkeypatch.setattr("sys.stdout", stream)
        view = open_view(markdown=False, reasoning=True)
        view.pause()
        view.resume()
        view.text("4")
        written = len(stream.getvalue())
        view.pause()
        view.resume()
        view.close()
        assert stream.getvalue()[written:] == "\n"
        screens[name] = stream.getvalue()
    assert frames(screens["terminal"]) >= 2 and screens["pipe"] == "4\n"
    assert shown(type("Screen", (), {"file": io.StringIO(screens["terminal"])})) == "4"


def test_a_terminal_without_a_cursor_sees_nothing_that_moves(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("TERM", "dumb")
    view = open_view(markdown=True, reasoning=True)
    view.close()
    assert stream.getvalue() == "\n"


@pytest.mark.parametrize(("encoding", "name"), [("utf-8", "dots"), ("ascii", "line")])
def test_the_sign_can_be_written(encoding, name):
    target = SimpleNamespace(encoding=encoding)
    assert spinner(target).name == name


def test_which_view(monkeypatch):
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert isinstance(open_view(markdown=True, reasoning=True), PlainView)
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_view(markdown=True, reasoning=True), PlainView)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_view(markdown=False, reasoning=True), PlainView)
    view = open_view(markdown=True, reasoning=True)
    assert isinstance(view, MarkdownView)
    view.close()


def test_progress_of_requests():
    out = io.StringIO()
    with RequestProgress(20, out) as progress:
        for index in range(20):
            progress.step(failed=index == 3, tokens=5)
    lines = out.getvalue().splitlines()
    assert len(lines) == 10 and lines[-1].startswith("20 of 20 requests, 1 failed, ") and "tokens/s" in lines[-1]
    with RequestProgress(2, Terminal()) as progress:
        progress.step(failed=False, tokens=0)
        assert progress._bar is not None
        assert progress._bar.tasks[0].completed == 1
