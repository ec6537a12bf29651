"""Output of commands of plugins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from core.config.sizes import format_size
from core.suggest import nearest
from core.terminal.tables import table

if TYPE_CHECKING:
    from core.terminal.progress import CountProgress, RequestProgress


class Screen:
    """Tables, sizes and progress; `Terminal`."""

    def table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        right: Sequence[int] = (),
        optional: Sequence[int] = (),
    ) -> str:
        """Return rows as aligned text, no wider than the terminal."""
        return table(header, rows, right=right, optional=optional)

    def size(self, num_bytes: float) -> str:
        """Return a size with about three digits and a binary unit."""
        return format_size(num_bytes)

    def duration(self, seconds: float) -> str:
        """Return a length of time in its two largest units."""
        left = max(0, int(seconds))
        parts: list[str] = []
        for name, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
            count, left = divmod(left, size)
            if count or parts or name == "s":
                parts.append(f"{count} {name}")
        return " ".join(parts[:2])

    def meant(self, word: str, known: Iterable[str]) -> str:
        """Return a question for the one of `known` that is closest to a word."""
        return nearest(word, known)

    def counted(self, what: str, times: int) -> AbstractContextManager[Iterator[int]]:
        """Give 0, 1, ... and show progress after each."""
        from core.terminal.progress import counted

        return counted(what, times)

    def progress(self, what: str, total: int) -> CountProgress:
        """Return the progress of things that end in any order."""
        from core.terminal.progress import CountProgress

        return CountProgress(what, total)

    def requests(self, total: int, *, steady: bool = True) -> RequestProgress:
        """Return the progress of requests."""
        from core.terminal.progress import RequestProgress

        return RequestProgress(total, steady=steady)
