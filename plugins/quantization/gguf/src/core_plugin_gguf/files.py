"""Which files make up a GGUF checkpoint."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from core_plugin_gguf.faults import damaged
from core_plugin_gguf.header import MAGIC, VERSIONS, Header

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def is_gguf(path: Path) -> bool:
    """Say whether `path` is a GGUF file, or a directory with exactly one GGUF checkpoint, by its first 8 bytes."""
    first = path if path.is_file() else _only(path)
    if first is None or first.suffix != ".gguf" or _number(first) != 1:
        return False
    try:
        with first.open("rb") as file:
            start = file.read(8)
    except OSError:
        return False
    return len(start) == 8 and start[:4] == MAGIC and struct.unpack("<I", start[4:])[0] in VERSIONS


def open_parts(path: Path) -> list[Header]:
    """Open every file of the checkpoint; the first holds the metadata.

    Raises:
        CheckpointError: A file is missing or damaged, or `path` does not name one checkpoint.
    """
    first = _only(path) if path.is_dir() else path
    if first is None:
        raise damaged(path, "the directory does not hold exactly one GGUF checkpoint")
    if _number(first) != 1:
        raise damaged(first, "it is a later part of a split checkpoint; name the part that ends in 00001")
    return [Header(part) for part in _parts(first)]


def _only(path: Path) -> Path | None:
    """Return the single file, or the first of the single split checkpoint, in a directory."""
    if not path.is_dir():
        return None
    firsts = [file for file in path.glob("*.gguf") if _number(file) == 1]
    return firsts[0] if len(firsts) == 1 else None


def _number(path: Path) -> int:
    match = _PART.fullmatch(path.name)
    return int(match["number"]) if match else 1


def _parts(first: Path) -> list[Path]:
    match = _PART.fullmatch(first.name)
    if match is None:
        return [first]
    count = int(match["count"])
    names = (f"{match['stem']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1))
    parts = [first.with_name(name) for name in names]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise damaged(first, f"parts of the split checkpoint are missing: {', '.join(missing[:3])}")
    return parts
