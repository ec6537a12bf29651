"""The installed plugins, for commands of plugins."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from core.api.choices import StartChoice
from core.api.descriptors import Descriptor
from core.api.errors import PluginError
from core.api.given_options import GivenOptions
from core.api.installed import InstalledPlugin, PluginCheck, PluginDistribution
from core.api.kinds import Kind
from core.cli.plugins.naming import group_of, named
from core.cli.plugins.scope import scope_flags, selection
from core.config.parser import CoreParser
from core.plugins.catalog import Catalogue
from core.plugins.entry import Entry
from core.plugins.kinds import every_kind, kind_of
from core.plugins.metadata import entries_of, other_entries_of, project_of


class Scope:
    """The plugins that one start sees; `PluginScope`."""

    def __init__(self, catalogue: Catalogue, files: Iterable[str] = ()) -> None:
        self._catalogue = catalogue
        self.files = list(dict.fromkeys(str(Path(text).expanduser().absolute()) for text in files))

    def every(self) -> list[Entry]:
        """Return what is installed, whether it may take part or not."""
        return self._catalogue.every()

    def usable(self, ask: str | None = None) -> list[Entry]:
        """Return what may take part; naming what does not is an error that says why."""
        usable = self._catalogue.usable()
        if ask is None:
            return usable
        found = named(self._catalogue, ask, dists=True)
        if not set(found) & set(usable):
            raise self._catalogue.refusal(found[0], ask)
        return [entry for entry in found if entry in usable]

    def against(self, plugin: InstalledPlugin) -> str:
        """Return why an installed plugin takes no part; an empty text if it may."""
        return self._catalogue.against(Entry.of(plugin))

    def find(self, group: str, ask: str) -> Entry:
        """Return the usable plugin of a kind that a name means."""
        return self._catalogue.find(group, ask)

    def opened(self) -> Scope:
        """Execute the plugin files here, and return the scope with what they offer."""
        from core.plugins.files import open_files

        return self.including(open_files(self.files)[1])

    def including(self, plugins: Iterable[InstalledPlugin]) -> Scope:
        """Return the scope with further plugins."""
        return Scope(self._catalogue.including(map(Entry.of, plugins)), self.files)


class AllPlugins:
    """The installed plugins; `InstalledPlugins`."""

    def kinds(self) -> Mapping[str, Kind]:
        """Return every kind by its group."""
        return every_kind()

    def kind(self, word: str) -> Kind:
        """Return the kind that a user means."""
        return kind_of(group_of(word))

    def label(self, group: str) -> str:
        """Return the kind of a group in a sentence."""
        return kind_of(group).label

    def complete(self, prefix: str, **_: Any) -> list[str]:
        """Return the names of usable plugins."""
        from core.cli.completers import listed

        return [*listed(None)(prefix)]

    def add_flags(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags that say which plugins there are."""
        scope_flags(cast(CoreParser, parser))

    def scope(self, args: argparse.Namespace) -> Scope:
        """Return what those flags, the environment and the file leave of what is installed."""
        from core.selection.scope import limited

        select = selection(args)
        return Scope(limited(select, Catalogue.scan()), select.plugin_file)

    def distributions(self) -> Iterator[PluginDistribution]:
        """Yield the distributions that have entry points or are editable, in the order of the import path."""
        for dist in importlib.metadata.distributions():
            place = Path(str(dist.locate_file("")))
            try:
                plugins, project = entries_of(dist), project_of(dist)
            except PluginError as error:
                yield PluginDistribution("", "", place, error=error)
                continue
            others = _others(dist)
            if plugins or others or project is not None:
                requires = tuple(dist.requires or ()) if others else ()
                name, version = str(dist.metadata["Name"]), dist.version
                yield PluginDistribution(name, version, place, tuple(plugins), others, requires, project)

    def code_digest(self, dist: str) -> str:
        """Return the SHA-256 of the names and contents of a distribution's files."""
        from core.plugins.code import code_digest

        return code_digest(dist)

    def open_file(self, path: str) -> list[Entry]:
        """Execute a plugin file here, and return what it offers."""
        from core.plugins.files import open_files

        return open_files([path])[1]

    def descriptor(self, plugin: InstalledPlugin) -> Descriptor:
        """Import a plugin's manifest, and return its descriptor."""
        from core.plugins.drivers import load_descriptors

        candidates, failures = load_descriptors([Entry.of(plugin)])
        for failure in failures:
            raise failure.error()
        return candidates[0].descriptor

    def check(self, plugin: InstalledPlugin) -> PluginCheck:
        """Import a plugin with everything that it names, and hold that against its contracts."""
        from core.cli.host.examined import examined

        return examined(Entry.of(plugin))

    def choose(self, options: GivenOptions) -> StartChoice:
        """Choose as a start with these options would."""
        from core.cli.host.choice import chosen

        return chosen(options)


def _others(dist: importlib.metadata.Distribution) -> tuple[Entry, ...]:
    """Return the entry points of groups that are not core's and look like those of kinds."""
    try:
        return tuple(entry for entry in other_entries_of(dist) if "." in entry.group)
    except PluginError:
        return ()  # of a distribution that has nothing of core's
