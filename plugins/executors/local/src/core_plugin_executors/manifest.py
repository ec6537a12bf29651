"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import ExecutorSpec

INPROC = ExecutorSpec(
    name="inproc",
    impl="core_plugin_executors.inproc:InprocExecutor",
    api=1,
    summary="The worker lives in the engine process: no hop between scheduler and device",
    priority=80,
)

SUBPROCESS = ExecutorSpec(
    name="subprocess",
    impl="core_plugin_executors.process:SubprocessExecutor",
    api=1,
    summary="The worker lives in a process of its own: a crash of the device code leaves the engine alive",
    priority=20,
    options="core_plugin_executors.options:ExecutorOptions",
)
