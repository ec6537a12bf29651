"""Every plugin: its distribution is a good citizen of an environment with others."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path

import core
from core.plugins.drivers import unfound, unmet
from core.plugins.known import normalise
from core.plugins.unchanged import Unchanged
from core_testing.conformance.outcome import Level, NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.sources import imported_names, python_files

PUBLIC = ("core.api",)
"""Modules of core that plugins may import."""

FOR_COMMANDS = ("core", *(f"core.{name}" for name in core.__all__))
"""Further names that distributions with a command may import: those that every program uses, such as `core.LLM`."""


def entry_point_is_named_like_its_descriptor(subject: Subject) -> None:
    """The entry point's name is the descriptor's."""
    name = subject.descriptor.name
    require(name == subject.entry.name, f"the entry point is '{subject.entry.name}', its descriptor '{name}'")


def requirements_are_met(subject: Subject) -> None:
    """Everything that the descriptor and the distribution require is installed, and can be imported."""
    own = [] if subject.bare else list(subject.descriptor.requires)
    listed = [text for text in subject.distribution().requires or () if not _of_an_extra(text)]
    missing = [f"{text} ({why})" for text, why in unmet([*own, *listed])]
    if not subject.bare:
        missing += [f"the module {name}" for name in unfound(subject.descriptor.imports)]
    require(not missing, f"not met: {', '.join(missing)}")


def distribution_has_metadata(subject: Subject) -> None:
    """Version, summary and licence are stated."""
    from packaging.version import InvalidVersion, Version

    metadata = subject.distribution().metadata.json
    try:
        Version(str(metadata.get("version", "")))
    except InvalidVersion as error:
        require(False, f"its version cannot be read: {error}")
    classified = any(text.startswith("License ::") for text in metadata.get("classifier", ()))
    licence = metadata.get("license_expression") or metadata.get("license") or classified
    lacks = [name for name, value in (("Summary", metadata.get("summary")), ("License", licence)) if not value]
    require(not lacks, f"the metadata of {subject.entry.dist} lacks {' and '.join(lacks)}")


def distribution_ships_nothing_of_core(subject: Subject) -> None:
    """No file of the distribution lies in `core/`, whose modules belong to one distribution."""
    require(subject.package != "core", f"{subject.entry.value} is inside core itself")
    inside = [str(file) for file in subject.distribution().files or () if file.parts[0] in ("core", "core.py")]
    require(not inside, f"it ships {', '.join(inside[:3])}")
    own = Path(core.__file__).parent
    for folder in _roots(subject):
        found = folder / "core"
        # Development installs list no files: look beside the package instead.
        shadows = (found / "__init__.py").is_file() and found.resolve() != own.resolve() and folder not in _site(own)
        require(not shadows, f"a package `core` lies beside {subject.package} in {folder}")


def import_name_is_its_own(subject: Subject) -> None:
    """No other distribution, and not the standard library, has the same top-level package."""
    package, dist = subject.package, normalise(subject.entry.dist)
    require(package not in sys.stdlib_module_names, f"'{package}' is a module of the standard library")
    installed: Mapping[str, set[str]] = subject.shared.once(("packages",), _owners)
    owners = set(installed.get(package, ()))
    every = subject.catalogue.usable()
    owners |= {normalise(entry.dist) for entry in every if entry.value.split(":")[0].split(".")[0] == package}
    others = sorted(owners - {dist})
    require(not others, f"the package '{package}' is also that of {', '.join(others)}")
    spec = find_spec(package)
    require(spec is None or spec.origin, f"'{package}' has no __init__.py, so that any distribution can add to it")


def imports_only_the_public_interface(subject: Subject) -> None:
    """Of core, the sources import `core.api`; commands also `core.LLM`."""
    groups = {entry.group for entry in subject.catalogue.usable() if entry.dist == subject.entry.dist}
    names = FOR_COMMANDS if "core.commands" in groups else ()
    found = [
        f"{file.name}:{line} imports {name}"
        for file in python_files(subject.package)
        for line, name in imported_names(file)
        if name.split(".")[0] == "core"
        and name not in names
        and not any(name == one or name.startswith(f"{one}.") for one in PUBLIC)
    ]
    require(not found, f"{'; '.join(found[:3])}: only {PUBLIC[0]} is for plugins")


def _owners() -> Mapping[str, set[str]]:
    """Return the comparable names of the distributions that have each top-level package."""
    found: dict[str, set[str]] = defaultdict(set)
    for dist in distributions():
        name, packages = _PACKAGES.of(dist)
        for package in packages:
            found[package].add(name)
    return found


def _packages_of(dist: Distribution) -> tuple[str, set[str]]:
    """Return a distribution's comparable name and its top-level packages: those that it states, else its files'."""
    stated = (dist.read_text("top_level.txt") or "").split()
    files = [file for file in dist.files or () if file.suffix == ".py"] if not stated else []
    return normalise(dist.metadata["Name"] or ""), {*stated, *(file.parts[0].removesuffix(".py") for file in files)}


_PACKAGES = Unchanged(_packages_of, ("RECORD", "top_level.txt", "METADATA"))


def _of_an_extra(requirement: str) -> bool:
    _, _, marker = requirement.partition(";")
    return "extra" in marker


def _roots(subject: Subject) -> list[Path]:
    """Return the directories that hold the plugin's top-level package."""
    spec = find_spec(subject.package)
    if spec is None:
        raise NotApplicable(f"the package {subject.package} cannot be found; the manifest's checks say so")
    if spec.submodule_search_locations is None:
        return [Path(spec.origin).parent] if spec.origin else []
    return [Path(folder).parent for folder in spec.submodule_search_locations]


def _site(own: Path) -> tuple[Path, ...]:
    """Return the directory that core itself is installed in."""
    return (own.parent,)


CHECKS = checks(
    entry_point_is_named_like_its_descriptor,
    requirements_are_met,
    distribution_has_metadata,
    distribution_ships_nothing_of_core,
    import_name_is_its_own,
    imports_only_the_public_interface,
    level=Level.L0,
)
