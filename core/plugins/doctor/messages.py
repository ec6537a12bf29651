"""What the doctor asks of its child process, and what the child reports. Both travel as JSON."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from core.plugins.catalog import Entry


class Job(BaseModel):
    """One entry point to import, on the parent's import path."""

    group: str
    name: str
    dist: str
    version: str
    value: str
    path: list[str]

    @staticmethod
    def of(entry: Entry, path: list[str]) -> Job:
        """Return the job for an entry."""
        return Job(
            group=entry.group, name=entry.name, dist=entry.dist, version=entry.version, value=entry.value, path=path
        )

    @property
    def entry(self) -> Entry:
        """The entry as the catalogue has it."""
        return Entry(self.group, self.name, self.dist, self.version, self.value)


class Fault(BaseModel):
    """Why something did not load, with the code that the start would give."""

    code: str
    reason: str
    hint: str = ""


class Told(BaseModel):
    """What a hook plugin's own check of this machine found (`core_doctor`)."""

    level: Literal["ok", "warning", "error"]
    message: str
    hint: str = ""


class Report(BaseModel):
    """What importing a plugin showed.

    Attributes:
        found: Type of the object that the entry point names; empty when it could not be imported.
        descriptor: Whether that is a descriptor (of whatever kind).
        milliseconds: Wall time of importing the manifest, `core.api` being imported already.
        heavy: Device and array libraries that the manifest imported.
        deprecations: Deprecated uses in the plugin's own files, as `text (file:line)`.
        told: What the plugin's own check found.
        faults: What failed: the manifest alone, or every other object that the descriptor names.
    """

    found: str = ""
    descriptor: bool = False
    milliseconds: float = 0.0
    heavy: list[str] = []
    deprecations: list[str] = []
    told: list[Told] = []
    faults: list[Fault] = []
