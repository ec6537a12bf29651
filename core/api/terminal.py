"""Output of commands, the same on every terminal, in a pipe and in a log. Provisional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager


class RequestProgress(Protocol):
    """Progress of many requests. Entered before the first; leaving takes its bar away."""

    def __enter__(self) -> RequestProgress: ...

    def __exit__(self, *raised: Any) -> None: ...

    def step(self, *, failed: bool, tokens: int) -> None:
        """Say that one request is done, and how many tokens it generated."""
        ...


class CountedProgress(Protocol):
    """Progress of things that are counted. Entered before the first; leaving takes its bar away."""

    def __enter__(self) -> CountedProgress: ...

    def __exit__(self, *raised: Any) -> None: ...

    def step(self, note: str = "") -> None:
        """Say that one more is done; `note` says something about it."""
        ...


class Terminal(Protocol):
    """Output of commands: the same on every terminal, in a pipe and in a log."""

    def table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        right: Sequence[int] = (),
        optional: Sequence[int] = (),
    ) -> str:
        """Return rows as aligned text, no wider than the terminal.

        Args:
            header: Column titles; empty for none.
            right: Indices of columns that are aligned to the right.
            optional: Indices of columns that may be left out, the first one first.
        """
        ...

    def size(self, num_bytes: float) -> str:
        """Return a size with about three digits and a binary unit."""
        ...

    def duration(self, seconds: float) -> str:
        """Return a length of time in its two largest units: `3 d 4 h`, `12 s`."""
        ...

    def meant(self, word: str, known: Iterable[str]) -> str:
        """Return "Did you mean '...'?" for the one of `known` that is closest to a word, or an empty text."""
        ...

    def counted(self, what: str, times: int) -> AbstractContextManager[Iterator[int]]:
        """Give 0, 1, ... and show progress on standard error after each; nothing is drawn in between.

        Args:
            what: What is counted, in the plural.
        """
        ...

    def progress(self, what: str, total: int) -> CountedProgress:
        """Return the progress of things that end in any order, on standard error.

        Args:
            what: What is counted, in the plural.
        """
        ...

    def requests(self, total: int, *, steady: bool = True) -> RequestProgress:
        """Return the progress of requests, on standard error.

        Args:
            steady: Whether the bar moves between two of them; without, it takes no time from what is being measured.
        """
        ...
