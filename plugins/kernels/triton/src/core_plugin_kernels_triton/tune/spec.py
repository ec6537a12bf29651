"""Descriptor of the command; imports neither torch nor Triton."""

from __future__ import annotations

from core.api.descriptors import CommandSpec

BENCH_TUNE = CommandSpec(
    name="bench-tune",
    impl="core_plugin_kernels_triton.tune.command:BenchTune",
    api=1,
    summary="Time the sizes of tiles of Triton kernels for a model on the card at hand, and keep the best.",
)
