"""Calls of the commands, for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import CommandSample

_NOBODY = ("--url", "http://127.0.0.1:9", "-q", "hello")


def samples() -> Iterator[CommandSample]:
    """Yield what is typed, and what comes of it."""
    yield CommandSample("nobody answers", lambda folder: _NOBODY, status=1, plugin="chat")
    yield CommandSample("nobody answers", lambda folder: _NOBODY, status=1, plugin="complete")
    yield CommandSample(
        "one question",
        lambda folder: [str(folder / "model"), "-q", "hello", "--max-tokens", "2", "--num-blocks", "64"],
        model=True,
        plugin="run",
    )
