"""Calls of the command, for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import CommandSample

_ONE = ("--batch-size", "1", "--input-len", "4", "--output-len", "2", "--num-iters", "1", "--warmup", "0")


def samples() -> Iterator[CommandSample]:
    """Yield what is typed, and what comes of it."""
    size = ["--num-prompts", "2", "--output-len", "4", "--gap-ms", "1"]
    yield CommandSample("the load generator itself", lambda folder: ["client", *size], says="cpu us per chunk")
    yield CommandSample(
        "one batch",
        lambda folder: ["latency", "--model", str(folder / "model"), "--num-blocks", "64", *_ONE],
        says="average latency",
        model=True,
    )
