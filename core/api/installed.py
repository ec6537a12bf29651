"""Facts about an installed plugin: its entry point, its distribution, and the result of importing it.

Commands are told it by `CommandHost.plugins` (`core.api.plugins`). Provisional.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from core.api.errors import PluginError
    from core.api.patches import Finding
    from core.api.verdict import ProbeResult

FILE_PREFIX = "file:"
"""Begins the distribution name of a plugin that is a single file (`--plugin-file`)."""


@dataclass(frozen=True, slots=True, order=True)
class InstalledPlugin:
    """One installed entry point and the distribution it comes from.

    Attributes:
        group: Its entry-point group, which is that of its kind; the name of a kind's definition is a group, too.
        name: What users call it.
        dist: Its distribution; `file:NAME` for a plugin that is a single file.
        version: Version of that; of a file, the beginning of its SHA-256.
        value: Where its descriptor is, as `package.module:NAME`.
    """

    group: str
    name: str
    dist: str
    version: str
    value: str

    @property
    def owner(self) -> str:
        """The distribution with its version, as messages name it."""
        return f"{self.dist} {self.version}"

    @property
    def title(self) -> str:
        """Kind and name, as `platforms:cpu`."""
        return f"{self.group.removeprefix('core.')}:{self.name}"


@dataclass(frozen=True, slots=True)
class PluginDistribution:
    """A distribution on the import path that has entry points, or is installed from its source folder.

    One that is installed twice is told twice: the first is imported.

    Attributes:
        name: As its metadata writes it; empty where they cannot be read.
        version: Version of it.
        place: Folder of the import path in which it is.
        plugins: Its entry points of core's groups.
        others: Its other entry points whose group has a dot in its name, as those of kinds that plugins define have.
        requires: Its requirements (PEP 508) where it has such; else empty.
        project: Source folder of one that is installed from there (editable); None for any other.
        error: Why its metadata cannot be read: CORE-P131. It takes no part then.
    """

    name: str
    version: str
    place: Path
    plugins: tuple[InstalledPlugin, ...] = ()
    others: tuple[InstalledPlugin, ...] = ()
    requires: tuple[str, ...] = ()
    project: Path | None = None
    error: PluginError | None = None


@dataclass(frozen=True, slots=True)
class PluginFault:
    """Why a plugin, or something that it names, cannot be used: what a start would say.

    Attributes:
        code: Stable code.
        reason: What is wrong, without the plugin's name.
        hint: What to do about it, where that is known.
    """

    code: str
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class PluginCheck:
    """Result of importing a plugin.

    Attributes:
        loaded: What its entry point names; None if that cannot be imported.
        objects: Paths of everything that its descriptor names.
        faults: What keeps it from being used: its descriptor, or each object that does not fit its contract.
        told: What a hook module finds on this machine (`core_doctor`).
        probe: What a platform finds here; None for any other kind, and where there are faults.
    """

    loaded: object = None
    objects: tuple[str, ...] = ()
    faults: tuple[PluginFault, ...] = ()
    told: tuple[Finding, ...] = ()
    probe: ProbeResult | None = None
