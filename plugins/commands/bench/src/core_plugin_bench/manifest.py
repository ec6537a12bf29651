"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import CommandSpec

BENCH = CommandSpec(
    name="bench",
    impl="core_plugin_bench.command:Bench",
    api=1,
    summary="Measure latency, throughput, a server, or the start-up.",
)
