"""What is wrong with an installation without importing any plugin: duplicates, stale metadata, a shadowed `core`."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution
from pathlib import Path

import core
from core.api.errors import PluginError
from core.plugins.catalog import Entry, duplicate, entries_of, other_entries_of, project_of
from core.plugins.doctor.finding import Finding
from core.plugins.kinds import every_kind
from core.plugins.known import normalise

Points = dict[tuple[str, str], str]
"""`(group, name) -> object reference`."""


def examine_environment(entries: Sequence[Entry], *, all_distributions: bool = True) -> list[Finding]:
    """Return findings on `entries` and, with `all_distributions`, on the environment as a whole."""
    findings = [*_duplicates(entries)]
    dists, unreadable = _distributions(None if all_distributions else {entry.dist for entry in entries})
    for name, found in dists.items():
        findings += [*_installed_twice(name, found), *_stale(found[0])]
    if all_distributions:
        findings += [Finding("error", one.code, one.message.rstrip("."), one.hint) for one in unreadable]
        findings += [*_shadowed(), *_undefined()]
    return findings


def _distributions(names: set[str] | None) -> tuple[dict[str, list[Distribution]], list[PluginError]]:
    """Return plugin distributions in the order of `sys.path`, and why some cannot be read.

    Editable ones are among them even without entry points.
    """
    wanted = None if names is None else {normalise(name) for name in names}
    found: dict[str, list[Distribution]] = defaultdict(list)
    unreadable = []
    for dist in importlib.metadata.distributions():
        try:
            if not entries_of(dist) and project_of(dist) is None:
                continue
        except PluginError as error:
            unreadable.append(error)
            continue
        name = normalise(str(dist.metadata["Name"]))
        if wanted is None or name in wanted:
            found[name].append(dist)
    return found, unreadable


def _undefined() -> Iterator[Finding]:
    """Yield entry points that are meant for core, of kinds that nothing here defines."""
    known = every_kind()
    for dist in importlib.metadata.distributions():
        try:
            others = [entry for entry in other_entries_of(dist) if "." in entry.group and entry.group not in known]
            meant = others and (entries_of(dist) or any(_is_core(text) for text in dist.requires or ()))
        except PluginError:
            continue  # told above
        for entry in others if meant else ():
            cause = f"nothing installed defines the kind {entry.group}, so the plugin is never used"
            remedy = f"Install the plugin that defines it, or uninstall {entry.dist}."
            yield Finding.of(entry, "note", "CORE-P127", cause, remedy)


def _is_core(requirement: str) -> bool:
    return re.match(r"core(?![\w.-])", requirement) is not None


def _duplicates(entries: Iterable[Entry]) -> Iterator[Finding]:
    owners: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        owners[entry.group, entry.name].append(entry)
    for (group, name), found in owners.items():
        if len(found) > 1:
            error = duplicate(found)
            plugin = f"{group.removeprefix('core.')}:{name}"
            yield Finding("error", error.code, error.message.rstrip("."), error.hint, plugin)


def _installed_twice(name: str, dists: Sequence[Distribution]) -> Iterator[Finding]:
    places = list(dict.fromkeys(str(Path(str(dist.locate_file(""))).resolve()) for dist in dists))
    if len(places) > 1:
        versions = ", ".join(f"{dist.version} in {place}" for dist, place in zip(dists, places))
        cause = f"it is installed {len(places)} times: {versions}; the first one counts"
        remedy = "Uninstall it until it is gone, then install it once."
        yield Finding("warning", "CORE-P128", cause, remedy, dist=name, version=dists[0].version)


def _stale(dist: Distribution) -> Iterator[Finding]:
    """Hold the entry points of an editable distribution against those its source has now."""
    project = project_of(dist)
    declared = None if project is None else _declared(project / "pyproject.toml")
    if declared is None:
        return
    installed: Points = {(entry.group, entry.name): entry.value for entry in entries_of(dist)}
    changed = [key for key in sorted(declared.keys() | installed.keys()) if declared.get(key) != installed.get(key)]
    if changed:
        texts = "; ".join(
            f"{group.removeprefix('core.')}:{name} is {declared.get((group, name), 'gone')} in the source, "
            f"{installed.get((group, name), 'missing')} as installed"
            for group, name in changed
        )
        remedy = f"Install it again: pip install --no-deps -e {project}"
        yield Finding(
            "warning",
            "CORE-P121",
            f"its entry points are stale: {texts}",
            remedy,
            dist=str(dist.metadata["Name"]),
            version=dist.version,
        )


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


def _shadowed() -> Iterator[Finding]:
    """Find another package `core` that takes, or could take, the place of this one."""
    here = Path(str(core.__file__)).resolve().parent
    try:
        dist = importlib.metadata.distribution("core")
    except importlib.metadata.PackageNotFoundError:
        remedy = "Install core with pip, so that its version can be checked."
        yield Finding(
            "warning", "CORE-P125", f"core runs from {here}, but no distribution of that name is installed", remedy
        )
        return
    recorded = (project_of(dist) or Path(str(dist.locate_file("")))).resolve() / "core"
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
