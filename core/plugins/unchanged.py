"""Cache of distributions' metadata, read again only when a file has changed: a start asks several times."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import Distribution
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
Stamp = tuple[int, int, int]


class Unchanged(Generic[T]):
    """Values read of distributions, kept for as long as their files are the same.

    Args:
        read: Reads one; what it raises is raised, and not kept.
        files: The files in a distribution's metadata folder that decide what it returns.
    """

    def __init__(self, read: Callable[[Distribution], T], files: tuple[str, ...]) -> None:
        self._read, self._files = read, files
        self._kept: dict[str, tuple[list[Stamp | None], T]] = {}

    def of(self, dist: Distribution) -> T:
        """Return what `read` returns of a distribution."""
        folder = getattr(dist, "_path", None)
        if not isinstance(folder, Path):  # inside an archive, or of a finder of somebody's own
            return self._read(dist)
        stamps = [_stamp(f"{folder}/{name}") for name in self._files]
        kept = self._kept.get(str(folder))
        if kept is None or kept[0] != stamps:
            kept = self._kept[str(folder)] = stamps, self._read(dist)
        return kept[1]


def _stamp(path: str) -> Stamp | None:
    """Return what changes when a file does; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
