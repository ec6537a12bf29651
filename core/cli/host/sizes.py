"""The files of a model on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

_PART = re.compile(r"(?P<stem>.*)-\d{5}-of-(?P<count>\d{5})(?P<suffix>\.\w+)")


def sizes_of(path: Path) -> dict[str, int]:
    """Return name -> bytes of a model's files: those of a directory, or a file with its other parts."""
    if path.is_dir():
        return {file.relative_to(path).as_posix(): size for file, size in sorted(_inside(path))}
    match = _PART.fullmatch(path.name)
    parts = path.parent.glob(f"*-of-{match['count']}{match['suffix']}") if match else [path]
    own = [part for part in parts if match is None or part.name.startswith(f"{match['stem']}-")]
    return {part.name: part.stat().st_size for part in sorted(own)}


def _inside(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield files and their bytes; what cannot be looked at, or is gone meanwhile, is left out."""
    for file in folder.rglob("*"):
        with suppress(OSError):
            found = file.stat()
            if S_ISREG(found.st_mode):
                yield file, found.st_size
