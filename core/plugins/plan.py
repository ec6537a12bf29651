"""The plugin plan: what was chosen, frozen and hashed, replayed by every child process."""

from __future__ import annotations

import hashlib
from typing import Any

from pydantic import BaseModel, ConfigDict


class PlannedPlugin(BaseModel):
    """One active entry point.

    Attributes:
        group, name: The entry point.
        value: Its object reference (`package.manifest:NAME`).
        dist, version: The distribution it comes from.
        api: API integer its descriptor states.
        options: Options given to it.
        reference_only: Of a kernel: only the reference form that its descriptor names takes part, for an operation
            that no chosen kernel is of.
    """

    model_config = ConfigDict(frozen=True)

    group: str
    name: str
    value: str
    dist: str
    version: str
    api: int
    options: dict[str, Any] = {}
    reference_only: bool = False

    @property
    def owner(self) -> str:
        """Its owner, for errors and logs: name, distribution and version."""
        return f"'{self.name}' ({self.dist} {self.version})"


class PlannedFile(BaseModel):
    """A plugin that is a single file: its absolute path and the SHA-256 of its bytes, hexadecimal."""

    model_config = ConfigDict(frozen=True)

    path: str
    sha256: str


class PluginPlan(BaseModel):
    """Every driver and hook module that takes part, in order. Children verify it and never choose themselves."""

    model_config = ConfigDict(frozen=True)

    drivers: tuple[PlannedPlugin, ...] = ()
    hooks: tuple[PlannedPlugin, ...] = ()
    files: tuple[PlannedFile, ...] = ()

    def of(self, group: str) -> list[PlannedPlugin]:
        """Return the drivers of a group, in the order chosen."""
        return [plugin for plugin in self.drivers if plugin.group == group]

    def one(self, group: str) -> PlannedPlugin | None:
        """Return the only driver of a group, or None."""
        chosen = self.of(group)
        return chosen[0] if chosen else None

    @property
    def digest(self) -> str:
        """SHA-256 of the plan, hexadecimal."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()
