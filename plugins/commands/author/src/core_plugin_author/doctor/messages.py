"""Messages between the doctor and its child process: jobs, and reports in return. Both travel as JSON."""

from __future__ import annotations

from pydantic import BaseModel

from core.api import Finding, InstalledPlugin, PluginFault


class Job(BaseModel):
    """The plugin or plugin file to look at, on the parent's import path.

    Attributes:
        entry: Plugin to import; None to say what `file` offers.
        file: The plugin file that the entry is in, or that is asked about.
    """

    path: list[str]
    entry: InstalledPlugin | None = None
    file: str | None = None


class Report(BaseModel):
    """Result of importing a plugin.

    Attributes:
        descriptor: Whether the entry point names a descriptor (of whatever kind).
        milliseconds: Processor time of importing the manifest, `core.api` being imported already.
        heavy: Libraries that a manifest should not need, and this one imported.
        deprecations: Deprecated uses in the plugin's own files, as `text (file:line)`.
        told: Findings of the plugin's own check.
        faults: Objects that failed: the manifest alone, or every other object that the descriptor names.
        elsewhere: Whether the descriptor names objects outside the top-level package of its entry point.
        offered: Plugins that a plugin file offers.
    """

    descriptor: bool = False
    milliseconds: float = 0.0
    heavy: list[str] = []
    deprecations: list[str] = []
    told: list[Finding] = []
    faults: list[PluginFault] = []
    elsewhere: bool = False
    offered: list[InstalledPlugin] = []
