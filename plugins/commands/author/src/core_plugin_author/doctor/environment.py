"""Faults of an installation, found without importing any plugin: duplicates, stale metadata, a shadowed `core`."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

import core.api as api
from core.api import InstalledPlugin, InstalledPlugins, PluginDistribution, PluginError, PluginScope
from core_plugin_author.doctor.finding import Finding

Points = dict[tuple[str, str], str]
"""`(group, name) -> object reference`."""


def examine_environment(
    plugins: InstalledPlugins,
    scope: PluginScope,
    entries: Sequence[InstalledPlugin],
    *,
    all_distributions: bool = True,
) -> list[Finding]:
    """Return findings on `entries` and, with `all_distributions`, on the environment as a whole."""
    findings = [*_duplicates(scope, entries)]
    found = list(plugins.distributions())
    wanted = None if all_distributions else {canonicalize_name(entry.dist) for entry in entries}
    for name, dists in _named(found, wanted).items():
        findings += [*_installed_twice(name, dists), *_stale(dists[0])]
    if all_distributions:
        unreadable = [one.error for one in found if one.error is not None]
        findings += [Finding("error", one.code, one.message.rstrip("."), one.hint) for one in unreadable]
        findings += [*_shadowed(found), *_undefined(found, plugins.kinds())]
    return findings


def _named(found: Iterable[PluginDistribution], wanted: Collection[str] | None) -> dict[str, list[PluginDistribution]]:
    """Return plugin distributions by name, each in the order of `sys.path`; editable ones also without entry points."""
    named: dict[str, list[PluginDistribution]] = defaultdict(list)
    for one in found:
        name = canonicalize_name(one.name)
        if (one.plugins or one.project) and (wanted is None or name in wanted):
            named[name].append(one)
    return named


def _undefined(found: Iterable[PluginDistribution], known: Collection[str]) -> Iterator[Finding]:
    """Yield entry points that are meant for core, of kinds that nothing here defines."""
    for one in found:
        others = [entry for entry in one.others if entry.group not in known]
        meant = one.plugins or any(_is_core(text) for text in one.requires)
        for entry in others if meant else ():
            cause = f"nothing installed defines the kind {entry.group}, so the plugin is never used"
            remedy = f"Install the plugin that defines it, or uninstall {entry.dist}."
            yield Finding.of(entry, "note", "CORE-P127", cause, remedy)


def _is_core(requirement: str) -> bool:
    return re.match(r"core(?![\w.-])", requirement) is not None


def _duplicates(scope: PluginScope, entries: Iterable[InstalledPlugin]) -> Iterator[Finding]:
    owners = Counter((entry.group, entry.name) for entry in entries)
    for group, name in (key for key, count in owners.items() if count > 1):
        try:
            scope.find(group, name)
        except PluginError as error:
            plugin = f"{group.removeprefix('core.')}:{name}"
            yield Finding("error", error.code, error.message.rstrip("."), error.hint, plugin)


def _installed_twice(name: str, dists: Sequence[PluginDistribution]) -> Iterator[Finding]:
    places = list(dict.fromkeys(str(dist.place.resolve()) for dist in dists))
    if len(places) > 1:
        versions = ", ".join(f"{dist.version} in {place}" for dist, place in zip(dists, places))
        cause = f"it is installed {len(places)} times: {versions}; the first one counts"
        remedy = "Uninstall it until it is gone, then install it once."
        yield Finding("warning", "CORE-P128", cause, remedy, dist=name, version=dists[0].version)


def _stale(dist: PluginDistribution) -> Iterator[Finding]:
    """Hold the entry points of an editable distribution against those its source has now."""
    declared = None if dist.project is None else _declared(dist.project / "pyproject.toml")
    if declared is None:
        return
    installed: Points = {(entry.group, entry.name): entry.value for entry in dist.plugins}
    changed = [key for key in sorted(declared.keys() | installed.keys()) if declared.get(key) != installed.get(key)]
    if changed:
        texts = "; ".join(
            f"{group.removeprefix('core.')}:{name} is {declared.get((group, name), 'gone')} in the source, "
            f"{installed.get((group, name), 'missing')} as installed"
            for group, name in changed
        )
        remedy = f"Install it again: pip install --no-deps -e {dist.project}"
        cause = f"its entry points are stale: {texts}"
        yield Finding("warning", "CORE-P121", cause, remedy, dist=dist.name, version=dist.version)


def _declared(pyproject: Path) -> Points | None:
    """Return core's entry points of a project, or None if the file says nothing about them."""
    try:
        project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
        if "entry-points" in project.get("dynamic", ()):
            return None
        groups = project.get("entry-points", {})
        return {
            (group, name): value
            for group, points in groups.items()
            if group.startswith("core.")
            for name, value in points.items()
        }
    except (OSError, ValueError, KeyError, AttributeError):
        return None


def _shadowed(found: Iterable[PluginDistribution]) -> Iterator[Finding]:
    """Find another package `core` that takes, or could take, the place of this one."""
    here = Path(str(api.__file__)).resolve().parents[1]
    try:
        dist = importlib.metadata.distribution("core")
    except importlib.metadata.PackageNotFoundError:
        remedy = "Install core with pip, so that its version can be checked."
        yield Finding(
            "warning", "CORE-P125", f"core runs from {here}, but no distribution of that name is installed", remedy
        )
        return
    place = Path(str(dist.locate_file("")))
    project = next((one.project for one in found if (one.name, one.place) == ("core", place)), None)
    recorded = (project or place).resolve() / "core"
    if recorded != here:
        cause = f"core was imported from {here}, but the installed distribution {dist.version} is at {recorded}"
        yield Finding("error", "CORE-P125", cause, "Start from another folder, or mend PYTHONPATH.", dist="core")
    for folder in sys.path[: _index(here)]:
        other = Path(folder).resolve() / "core"
        if (other / "__init__.py").is_file() and other != here:
            cause = f"another package core at {other} comes before this one on the import path"
            yield Finding("error", "CORE-P125", cause, "Start from another folder, or rename that one.")
    for name in sorted(set(importlib.metadata.packages_distributions().get("core", [])) - {"core"}):
        cause = "it installs a top-level package core of its own, which takes the place of this one or is overwritten"
        yield Finding("error", "CORE-P125", cause, f"Uninstall {name}.", dist=name)


def _index(here: Path) -> int | None:
    """Return the place on the import path from which core came, None if it came from none of them."""
    folders = [Path(folder).resolve() for folder in sys.path]
    return folders.index(here.parent) if here.parent in folders else None
