"""Calls of the commands, for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import CommandSample


def samples() -> Iterator[CommandSample]:
    """Yield what is typed, and what comes of it."""
    yield CommandSample(
        "a plugin",
        lambda folder: ["schedulers", "acme", "--dir", str(folder)],
        says="manifest.py",
        plugin="plugins-new",
    )
    yield CommandSample("no such kind", lambda folder: ["telepathy", "acme"], status=1, plugin="plugins-new")
    yield CommandSample(
        "a sound plugin", lambda folder: ["plugins-new", "--json"], says='"plugins": 1', plugin="plugins-doctor"
    )
    yield CommandSample("nothing to examine", lambda folder: ["telepathist"], status=1, plugin="plugins-doctor")
    yield CommandSample("nothing to check", lambda folder: ["telepathist"], status=4, plugin="plugins-test")
    yield CommandSample(
        "a model",
        lambda folder: [str(folder / "plugins.lock"), str(folder / "model")],
        says=" distributions, ",
        model=True,
        plugin="plugins-lock",
    )
