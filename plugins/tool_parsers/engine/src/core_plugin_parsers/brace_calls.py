"""Calls written as `call:f{k:<quote>v<quote>,n:42}`: bare keys, texts between a token of their own."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from core_plugin_parsers.json_value import JsonScanner
from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.stepping import SteppingReader
from core_plugin_parsers.tags import SPACE, TOOL_NAME, UNDECIDED, Finder, literal_at, skip_space

_HEAD = re.compile(rf"\s*call:\s*(?P<name>{TOOL_NAME.pattern})\s*")
_MOST_HEAD = 512
_PIECE = re.compile(r"[{}\[\],:]|[^{}\[\],:]+")
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null", re.ASCII)


@dataclass(frozen=True)
class BraceCalls:
    """One call a block.

    Attributes:
        closes: The tag that ends the call, and the block.
        quote: What stands on both sides of a text.
    """

    closes: str
    quote: str

    def reader(self, sink: CallSink) -> BraceCallsReader:
        """Return a reader for one block."""
        return BraceCallsReader(self, sink)

    @cached_property
    def head_finder(self) -> Finder:
        """Finder of the literals that end a call's name."""
        return Finder(("{", self.closes))

    @cached_property
    def bare_finder(self) -> Finder:
        """Finder of the literals that end bare text: the call's end, or the beginning of a text."""
        return Finder((self.closes, self.quote))

    @cached_property
    def text_finder(self) -> Finder:
        """Finder of the literal that ends a text, in which a tag is text."""
        return Finder((self.quote,))


class _At(Enum):
    HEAD = auto()
    BARE = auto()
    TEXT = auto()
    AFTER = auto()


class BraceCallsReader(SteppingReader):
    """`Reader` of `BraceCalls`. Arguments are written anew as JSON and passed on as far as they are complete."""

    def __init__(self, form: BraceCalls, sink: CallSink) -> None:
        super().__init__(sink, _At.HEAD)
        self._form = form
        self._head = ""
        self._word: list[str] = []  # bare text up to what ends it
        self._scanner = JsonScanner()

    def finish(self) -> None:
        """End the message."""
        if self._sink.is_open:
            self._sink.arguments(self._scanner.closing())
            self._sink.end()

    def _read(self, data: str, position: int) -> int:
        if self._at is _At.HEAD:
            return self._until_brace(data, position)
        if self._at is _At.BARE:
            return self._bare(data, position)
        if self._at is _At.TEXT:
            return self._text(data, position)
        return self._closed(data, position)

    def _until_brace(self, data: str, position: int) -> int:
        room = _MOST_HEAD - len(self._head)
        end, literal = self._form.head_finder.find(data, position, room)
        self._head += data[position:end]
        found = _HEAD.fullmatch(self._head)
        if end - position > room or (literal != UNDECIDED and (literal != "{" or found is None)):
            self.failed = True
        elif literal != UNDECIDED and found is not None:
            self._sink.start(found["name"])
            self._at = _At.BARE
        return end

    def _bare(self, data: str, position: int) -> int:
        """Read bare text: keys, numbers and words, and what stands between them."""
        end, literal = self._form.bare_finder.find(data, position)
        for found in _PIECE.finditer(data, position, end):
            if found[0] not in "{}[],:":
                self._word.append(found[0])
                continue
            self._pass(self._worded(key=found[0] == ":") + found[0])
            if self.failed or self._at is _At.AFTER:
                return found.end()
        if literal == self._form.closes:
            return self._broken(end)
        if literal != UNDECIDED:
            self._pass(self._worded(key=False) + '"')
            self._at = _At.TEXT
        return end + len(literal)

    def _worded(self, *, key: bool) -> str:
        """Return the bare text that has ended as JSON: keys, and words that are no JSON scalars, in quotes."""
        text = "".join(self._word)
        self._word = []
        word = text.strip(SPACE)
        before, _, after = text.partition(word) if word else (text, "", "")
        plain = not word or (not key and _SCALAR.fullmatch(word))
        return f"{before}{word if plain else json.dumps(word)}{after}"

    def _text(self, data: str, position: int) -> int:
        end, literal = self._form.text_finder.find(data, position)
        self._pass(json.dumps(data[position:end], ensure_ascii=False)[1:-1])
        if literal != UNDECIDED and not self.failed:
            self._at = _At.BARE
            self._pass('"')
        return end + len(literal)

    def _pass(self, text: str) -> None:
        """Pass on the next piece of the arguments' JSON."""
        scanner = self._scanner
        scanner.feed(text, 0)
        self._sink.arguments(scanner.take())
        if scanner.done:
            self._sink.end()
            self._at = _At.AFTER
        elif scanner.failed:
            self._broken(0)

    def _broken(self, position: int) -> int:
        """End a call that is not, or not any more, what calls are like; the rest is text."""
        self.finish()
        self.failed = True
        return position

    def _closed(self, data: str, position: int) -> int:
        """Read the closing tag, which may be missing."""
        position = skip_space(data, position)
        literal = literal_at(data, position, (self._form.closes,))
        self.ended = position < len(data) and literal != UNDECIDED
        return position + len(literal or "")
