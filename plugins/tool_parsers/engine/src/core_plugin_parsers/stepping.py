"""The outline of readers that go from state to state."""

from __future__ import annotations

from enum import Enum

from core_plugin_parsers.reader import CallSink


class SteppingReader:
    """A `Reader` whose `_read` takes one step: it moves on in the text, or changes the state, or needs more text."""

    def __init__(self, sink: CallSink, at: Enum) -> None:
        self.ended = False
        self.failed = False
        self._sink, self._at = sink, at
        self._before = sink.count

    @property
    def _calls(self) -> int:
        """How many calls of this block have ended."""
        return self._sink.count - self._before

    def feed(self, data: str, start: int) -> int:
        """Read on; see `Reader`."""
        position, calls = start, self._sink.count
        while position < len(data) and not self.failed and not self.ended and self._sink.count == calls:
            before = (position, self._at)
            position = self._read(data, position)
            if (position, self._at) == before:
                break
        return position

    def _read(self, data: str, position: int) -> int:
        """Take a step from `position` and return where it ends."""
        raise NotImplementedError

    def _stop(self) -> None:
        """Leave the text that stands here to whoever comes next: behind a call, the block is over."""
        self.ended = self._calls > 0
        self.failed = not self.ended
