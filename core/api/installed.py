"""The plugins that are installed here, as a command meets them: what there is, and what may take part.

A command gets them as `CommandHost.plugins`. All is read from metadata; what imports a plugin says so. Provisional.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from core.api.choices import StartChoice
    from core.api.descriptors import Descriptor
    from core.api.errors import PluginError
    from core.api.given_options import GivenOptions
    from core.api.kinds import Kind
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
    """What importing a plugin showed.

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


class PluginScope(Protocol):
    """The plugins that one start sees: what is installed, and which of them `--plugins` and `--disable-plugin` leave.

    Attributes:
        files: Paths of the plugin files that `--plugin-file` names. What they offer is no part before `opened`.
    """

    @property
    def files(self) -> Sequence[str]: ...

    def every(self) -> Sequence[InstalledPlugin]:
        """Return what is installed, whether it may take part or not, by group, name and distribution."""
        ...

    def usable(self, ask: str | None = None) -> Sequence[InstalledPlugin]:
        """Return what may take part.

        Args:
            ask: Only what this means: `name`, `name@distribution`, `kind:name`, or a distribution for all it brings.

        Raises:
            PluginError: CORE-P101, nothing is called so, or it takes no part; the message says why.
        """
        ...

    def against(self, plugin: InstalledPlugin) -> str:
        """Return why an installed plugin takes no part; an empty text if it may."""
        ...

    def find(self, group: str, ask: str) -> InstalledPlugin:
        """Return the usable plugin of a kind that `name` or `name@distribution` names.

        Raises:
            PluginError: CORE-P101, there is none; CORE-P102, several distributions have one, and how to choose.
        """
        ...

    def opened(self) -> PluginScope:
        """Execute the plugin files in this process, and return the scope with what they offer. Raises `PluginError`."""
        ...

    def including(self, plugins: Iterable[InstalledPlugin]) -> PluginScope:
        """Return the scope with further plugins, such as a file offered in another process."""
        ...


class InstalledPlugins(Protocol):
    """What is installed here, and what core makes of it.

    A command that looks at what a start with the same flags sees calls `add_flags`, then `scope`; one that chooses as a
    start does takes all options (`OptionFlags.add`), and calls `choose`.
    """

    def kinds(self) -> Mapping[str, Kind]:
        """Return every kind by its group: core's, then those that plugins define, whose definitions are imported."""
        ...

    def kind(self, word: str) -> Kind:
        """Return the kind that a user means: by its group, with or without `core.`, its label, or its option.

        Raises:
            PluginError: CORE-P101 with what may have been meant.
        """
        ...

    def label(self, group: str) -> str:
        """Return the kind of a group in a sentence; of a group that is no kind here, the group."""
        ...

    def complete(self, prefix: str, **_: Any) -> Sequence[str]:
        """Return the names of usable plugins: a `completer` of argcomplete."""
        ...

    def add_flags(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags that say which plugins there are (`--plugins`, `--disable-plugin`, `--plugin-file`)."""
        ...

    def scope(self, args: argparse.Namespace) -> PluginScope:
        """Return what those flags, the environment and the file leave of what is installed.

        A wrong setting elsewhere hides no plugin: it is told on standard error, and the command line decides alone.

        Raises:
            ConfigError: The command line, or the file that it names, has a value that is not allowed.
        """
        ...

    def distributions(self) -> Iterable[PluginDistribution]:
        """Yield the distributions that have entry points or are editable, in the order of the import path."""
        ...

    def code_digest(self, dist: str) -> str:
        """Return the SHA-256, hexadecimal, of the names and contents of a distribution's files: `core` is one, too.

        Raises:
            PluginError: CORE-P175, it is not installed, or a file cannot be read.
        """
        ...

    def open_file(self, path: str) -> Sequence[InstalledPlugin]:
        """Execute a plugin file in this process, and return what it offers.

        Raises:
            PluginError: CORE-P303, it cannot be a plugin; CORE-P103, it fails to import.
        """
        ...

    def descriptor(self, plugin: InstalledPlugin) -> Descriptor:
        """Import a plugin's manifest, and return its descriptor. Hook modules and definitions of kinds have none.

        Raises:
            PluginError: Why the plugin cannot be used: CORE-P103, -P104, -P105, -P106, or CORE-P111 (a library that it
                is for is not here).
        """
        ...

    def check(self, plugin: InstalledPlugin) -> PluginCheck:
        """Import a plugin with everything that it names, here, and hold that against the contracts of its kind.

        What a plugin does when it is imported may end the process: `CommandHost.in_process` gives another one for it.
        """
        ...

    def choose(self, options: GivenOptions) -> StartChoice:
        """Choose as a start with these options would. Manifests, and what judges a request, are imported."""
        ...
