"""Calls of the command, for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core_testing.conformance import CommandSample


def samples() -> Iterator[CommandSample]:
    """Yield what is typed, and what comes of it."""
    yield CommandSample("no requests", lambda folder: _batch(folder, ""), says="0 answered, 0 failed")
    yield CommandSample("a bad line", lambda folder: _batch(folder, "{\n"), status=1, says="0 answered, 1 failed")


def _batch(folder: Path, text: str) -> list[str]:
    source = folder / "in.jsonl"
    source.write_text(text, encoding="utf-8")
    return ["--input-file", str(source), "--output-file", str(folder / "out.jsonl")]
