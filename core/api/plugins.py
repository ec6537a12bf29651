"""The plugins that are installed here, as a command meets them: what there is, and what may take part.

A command gets them as `CommandHost.plugins`. All is read from metadata; what imports a plugin says so. Provisional.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from core.api.choices import StartChoice
    from core.api.descriptors import Descriptor
    from core.api.given_options import GivenOptions
    from core.api.installed import InstalledPlugin, PluginCheck, PluginDistribution
    from core.api.kinds import Kind


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
    """The installed plugins, and core's choices among them.

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
