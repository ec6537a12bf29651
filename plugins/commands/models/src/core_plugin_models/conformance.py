"""Calls of the commands, for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import CommandSample


def samples() -> Iterator[CommandSample]:
    """Yield what is typed, and what comes of it."""
    yield CommandSample(
        "without a network",
        lambda folder: ["acme/none", "--offline", "--download-dir", str(folder)],
        status=1,
        plugin="pull",
    )
    yield CommandSample("as JSON", lambda folder: ["--json", "--download-dir", str(folder)], says="[", plugin="ls")
    yield CommandSample(
        "a directory", lambda folder: [str(folder / "model")], says="LlamaForCausalLM", model=True, plugin="show"
    )
    yield CommandSample(
        "nothing of that name",
        lambda folder: ["acme/none", "--yes", "--download-dir", str(folder)],
        status=1,
        plugin="rm",
    )
