"""Calls written as `call:f{k:<quote>v<quote>,n:42}`: bare keys, texts between a token of their own."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property

from core_plugin_parsers.json_value import JsonScanner
from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.tags import UNDECIDED, Finder

_HEAD = re.compile(r"\s*call:\s*([^\s{]+)\s*(?=\{)")
_PIECE = re.compile(r"\s+|[{}\[\],:]|[^\s{}\[\],:]+")
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
    def finder(self) -> Finder:
        """What ends the call, or begins a text."""
        return Finder((self.closes, self.quote))


class BraceCallsReader:
    """`Reader` of `BraceCalls`. A call is known when it ends; one that breaks off is text."""

    def __init__(self, form: BraceCalls, sink: CallSink) -> None:
        self.ended = False
        self.failed = False
        self._form, self._sink = form, sink
        self._parts: list[str] = [""]  # bare text and quoted texts in turn
        self._pieces: list[str] = []

    def feed(self, data: str, start: int) -> int:
        """Read on; see `Reader`."""
        position = start
        while position < len(data) and not self.failed and not self.ended:
            quoted = len(self._parts) % 2 == 0
            end, literal = self._form.finder.find(data, position)
            self._pieces.append(data[position:end])
            position = end + len(literal)
            if literal == UNDECIDED:
                break
            if literal == self._form.closes and quoted:
                self._pieces.append(literal)  # a tag inside a text is text
                continue
            self._parts[-1] = "".join(self._pieces)
            self._pieces = []
            if literal == self._form.closes:
                self._known()
            else:
                self._parts.append("")
        return position

    def finish(self) -> None:
        """End the message."""
        self._parts[-1] = "".join(self._pieces)
        self._known()

    def _known(self) -> None:
        head = _HEAD.match(self._parts[0])
        arguments = None if head is None else self._arguments(self._parts[0][head.end() :])
        if head is None or arguments is None:
            self.failed = True
            return
        self._sink.whole(head[1], arguments)
        self.ended = True

    def _arguments(self, first: str) -> str | None:
        """Return the JSON object that the parts write, or None."""
        found = []
        for number, part in enumerate([first, *self._parts[1:]]):
            found.append(json.dumps(part, ensure_ascii=False) if number % 2 else _bare(part))
        text = "".join(found).strip()
        scanner = JsonScanner()
        end = scanner.feed(text, 0)
        return scanner.take() if scanner.done and end == len(text) and text.startswith("{") else None


def _bare(text: str) -> str:
    """Return bare text with its keys, and words that are no JSON scalars, in quotes."""
    pieces = _PIECE.findall(text)
    return "".join(
        piece if piece in "{}[],:" or piece.isspace() or _SCALAR.fullmatch(piece) else json.dumps(piece)
        for piece in pieces
    )
