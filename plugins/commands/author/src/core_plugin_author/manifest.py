"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import CommandSpec

NEW = CommandSpec(
    name="plugins-new",
    impl="core_plugin_author.new:New",
    api=1,
    summary="Write a plugin that works, to be changed into yours.",
)
DOCTOR = CommandSpec(
    name="plugins-doctor",
    impl="core_plugin_author.doctor.command:Doctor",
    api=1,
    summary="Check installed plugins, each in a process of its own.",
)
TEST = CommandSpec(
    name="plugins-test",
    impl="core_plugin_author.kit:Kit",
    api=1,
    summary="Run the conformance kit for a plugin.",
)
LOCK = CommandSpec(
    name="plugins-lock",
    impl="core_plugin_author.lock:Lock",
    api=1,
    summary="Choose as `serve` would for a model, and write the plugins to a lock file.",
)
