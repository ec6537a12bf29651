"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import CommandSpec

RUN_BATCH = CommandSpec(
    name="run-batch",
    impl="core_plugin_run_batch.command:RunBatch",
    api=1,
    summary="Answer the requests of a file (OpenAI Batch format).",
)
