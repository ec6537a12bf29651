"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import CommandSpec

PS = CommandSpec(
    name="ps",
    impl="core_plugin_processes.listing:Ps",
    api=1,
    summary="List the servers of this user that are running.",
)
STOP = CommandSpec(
    name="stop",
    impl="core_plugin_processes.stop:Stop",
    api=1,
    summary="End a running server of this user.",
)
