"""What the doctor asks of its child process, and what the child reports. Both travel as JSON."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from core.plugins.catalog import Entry


class Point(BaseModel):
    """An entry as it travels."""

    group: str
    name: str
    dist: str
    version: str
    value: str

    @staticmethod
    def of(entry: Entry) -> Point:
        """Return an entry for the journey."""
        return Point(group=entry.group, name=entry.name, dist=entry.dist, version=entry.version, value=entry.value)

    @property
    def entry(self) -> Entry:
        """The entry as the catalogue has it."""
        return Entry(self.group, self.name, self.dist, self.version, self.value)


class Job(BaseModel):
    """What to look at, on the parent's import path.

    Attributes:
        point: The entry to import; None to say what `file` offers.
        file: The plugin file that the entry is in, or that is asked about.
    """

    path: list[str]
    point: Point | None = None
    file: str | None = None


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
        heavy: Libraries that a manifest should not need, and this one imported.
        deprecations: Deprecated uses in the plugin's own files, as `text (file:line)`.
        told: What the plugin's own check found.
        faults: What failed: the manifest alone, or every other object that the descriptor names.
        offered: What a plugin file offers.
    """

    found: str = ""
    descriptor: bool = False
    milliseconds: float = 0.0
    heavy: list[str] = []
    deprecations: list[str] = []
    told: list[Told] = []
    faults: list[Fault] = []
    offered: list[Point] = []
