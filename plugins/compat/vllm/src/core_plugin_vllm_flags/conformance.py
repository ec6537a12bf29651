"""Command lines for the conformance kit, and what each becomes."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import FlagSample


def samples() -> Iterator[FlagSample]:
    """Yield what is typed, and what core reads; None where it is refused."""
    yield FlagSample("another name", ["--gpu-memory-utilization", "0.8"], ["--memory-fraction", "0.8"])
    yield FlagSample("one that is off", ["--no-enable-prefix-caching"], ["--no-prefix-caching"])
    yield FlagSample("one worker", ["--tensor-parallel-size", "1"], [])
    yield FlagSample("a short flag with its value", ["-tp1", "--port", "1"], ["--port", "1"])
    yield FlagSample("words of core's", ["--enforce-eager"], ["--graphs", "none"])
    yield FlagSample("a switch that is off", ["--no-async-scheduling"], ["--overlap-depth", "0"])
    yield FlagSample(
        "a value that is passed on",
        ["--kv-offloading-size", "4"],
        ["--kv-connector", "cpu_offload", "--opt", "cpu_offload.capacity=4GiB"],
    )
    yield FlagSample("several workers", ["-tp", "2"], None)
    yield FlagSample("a value that lacks", ["--nnodes"], None)
    yield FlagSample("code of the checkpoint", ["--trust-remote-code"], None)
