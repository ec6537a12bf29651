"""Headers in front of the parts of a message, which say what a part is: `to=self<|message|>`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from core_plugin_parsers.prose import Prose
from core_plugin_parsers.reader import CallSink
from core_plugin_parsers.tags import UNDECIDED, Finder

_MOST = 256
"""Characters of a header; what runs on is none."""


@dataclass(frozen=True)
class Headers:
    """Headers between a block's tag and `ends`, which decide what follows. They hold no calls themselves.

    Attributes:
        ends: The literal behind a header.
        kinds: Kind of a part, by the header's text; one with another header is shown text.
        begins: Text that every header begins with.
    """

    ends: str
    kinds: Mapping[str, Prose] = field(default_factory=dict)
    begins: str = ""

    def shown(self) -> Headers:
        """Return the same headers where all parts are to be shown."""
        return replace(self, kinds={})

    def reader(self, sink: CallSink) -> HeaderReader:
        """Return a reader for one header."""
        return HeaderReader(self)

    @cached_property
    def finder(self) -> Finder:
        """Finder of the literal that ends a header."""
        return Finder((self.ends,))


class HeaderReader:
    """`Reader` of `Headers`.

    Attributes:
        then: What follows.
    """

    def __init__(self, form: Headers) -> None:
        self.ended = False
        self.failed = False
        self.then = Prose.TEXT
        self._form = form
        self._text: list[str] = []
        self._length = 0

    def feed(self, data: str, start: int) -> int:
        """Read on; see `Reader`."""
        end, literal = self._form.finder.find(data, start, _MOST - self._length)
        self._text.append(data[start:end])
        self._length += end - start
        text = "".join(self._text)
        self._text = [text]
        begins = self._form.begins
        self.failed = self._length > _MOST or text[: len(begins)] != begins[: len(text)]
        if literal != UNDECIDED and not self.failed:
            self.ended = True
            self.then = self._form.kinds.get(text.strip(), Prose.TEXT)
        return end + (len(literal) if self.ended else 0)

    def finish(self) -> None:
        """End the message: half a header is text."""
