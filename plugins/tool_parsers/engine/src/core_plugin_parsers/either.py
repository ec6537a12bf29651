"""A block whose first character says how its calls are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core_plugin_parsers.reader import CallForm, CallSink, Reader
from core_plugin_parsers.tags import skip_space


@dataclass(frozen=True)
class Either:
    """One form for blocks that begin with one of some characters, another for all others.

    Attributes:
        by_head: Form by first character, white space aside.
        otherwise: The form of other blocks.
    """

    by_head: Mapping[str, CallForm]
    otherwise: CallForm

    def reader(self, sink: CallSink) -> EitherReader:
        """Return a reader for one block."""
        return EitherReader(self, sink)


class EitherReader:
    """`Reader` of `Either`."""

    def __init__(self, form: Either, sink: CallSink) -> None:
        self._form, self._sink = form, sink
        self._chosen: Reader | None = None

    @property
    def ended(self) -> bool:
        """Whether the block is over."""
        return self._chosen is not None and self._chosen.ended

    @property
    def failed(self) -> bool:
        """Whether reading stopped at what is no call."""
        return self._chosen is not None and self._chosen.failed

    def feed(self, data: str, start: int) -> int:
        """Read on; see `Reader`."""
        if self._chosen is None:
            head = skip_space(data, start)
            if head == len(data):
                return head
            self._chosen = self._form.by_head.get(data[head], self._form.otherwise).reader(self._sink)
            start = head
        return self._chosen.feed(data, start)

    def finish(self) -> None:
        """End the message."""
        if self._chosen is not None:
            self._chosen.finish()
