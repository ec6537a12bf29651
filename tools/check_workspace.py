"""Check the plugin distributions of this checkout: names, entry points, listing, torch-free manifests, no duplicates.

Prints one sentence per problem and exits 1 if there is any. Run it with an interpreter that has core installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from core.plugins.kinds import KINDS

_ROOT = Path(__file__).resolve().parent.parent
_HOOKS = "core.plugins"
_GROUPS = {*KINDS, "pytest11"}
_LIBRARIES = frozenset({"core-testing", "core-tokenizers"})
"""Distributions that are no plugins, and named for what they do: people who write plugins depend on them."""

_LISTS = ("cpu.txt", "test.txt")
"""Files of `requirements/` that install the distributions."""

_PROBE = """
import importlib, json, sys
sys.path[:0] = json.loads(sys.argv[1])
for name in ("torch", "triton", "transformers"):
    sys.modules[name] = None
answer = {}
for group, name, value in json.loads(sys.argv[2]):
    try:
        module, _, attribute = value.partition(":")
        found = getattr(importlib.import_module(module), attribute) if attribute else importlib.import_module(module)
        answer[f"{group}:{name}"] = {"name": getattr(found, "name", None), "group": getattr(type(found), "group", None)}
    except Exception as error:
        answer[f"{group}:{name}"] = {"error": f"{type(error).__name__}: {error}"}
print(json.dumps(answer))
"""


@dataclass(frozen=True)
class Distribution:
    """A folder `plugins/<kind>/<name>` and its pyproject."""

    folder: Path
    project: dict[str, Any]

    @property
    def package(self) -> str:
        """Import package that the conventions give it."""
        return str(self.project.get("name", "")).replace("-", "_")

    @property
    def entry_points(self) -> list[tuple[str, str, str]]:
        """`(group, name, value)` of every entry point."""
        groups = self.project.get("entry-points", {})
        return [(group, name, value) for group, names in groups.items() for name, value in names.items()]

    @property
    def requirements(self) -> set[str]:
        """Names of the distributions that it needs."""
        return {_requirement_name(text) for text in self.project.get("dependencies", ())}


def find(root: Path) -> tuple[list[Distribution], list[str]]:
    """Return the distributions under `root/plugins`, and the folders there that are none."""
    found, problems = [], []
    for folder in sorted(path for path in root.glob("plugins/*/*") if path.is_dir()):
        try:
            project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
            problems.append(
                f"{_relative(root, folder)} has no readable pyproject.toml with a [project] table: {error!r}."
            )
            continue
        found.append(Distribution(folder, project))
    return found, problems


def check_names(root: Path, one: Distribution, *, shared: bool = False) -> list[str]:
    """Hold a distribution's names and entry points against the conventions.

    Args:
        shared: Others of this checkout need it, so that it may be a library without entry points.
    """
    where, problems = _relative(root, one.folder), []
    name = str(one.project.get("name", ""))
    if name not in _LIBRARIES and (not name.startswith("core-plugin-") or canonicalize_name(name) != name):
        problems.append(f"{where}: the distribution is called {name!r}; names are core-plugin-<name>, in lower case.")
    is_library = name in _LIBRARIES or (shared and not one.entry_points)
    if not is_library and not (one.folder / "src" / one.package / "manifest.py").is_file():
        problems.append(f"{where}: src/{one.package}/manifest.py is missing.")
    if not (one.folder / "README.md").is_file():
        problems.append(f"{where}: README.md is missing.")
    if "core" not in one.requirements:
        problems.append(f"{where}: core is not among its dependencies.")
    if not is_library and not one.entry_points:
        problems.append(f"{where}: it declares no entry point, so core cannot find it.")
    for group, entry, value in one.entry_points:
        if group not in _GROUPS:
            problems.append(f"{where}: entry-point group {group!r} is not one of core's.")
        elif group in KINDS and group != _HOOKS and value.partition(":")[0] != f"{one.package}.manifest":
            problems.append(f"{where}: {group}:{entry} points to {value!r}, not into {one.package}.manifest.")
    return problems


def check_duplicates(found: list[Distribution]) -> list[str]:
    """Report entry points and packages that two distributions of this checkout share."""
    entries = Counter((group, name) for one in found for group, name, _ in one.entry_points)
    names = Counter(one.project.get("name") for one in found)
    return [f"{group}:{name} is declared {count} times." for (group, name), count in entries.items() if count > 1] + [
        f"{count} distributions are called {name}." for name, count in names.items() if count > 1
    ]


def check_listing(root: Path, found: list[Distribution]) -> list[str]:
    """Compare the folders with the lines of the files that install them."""
    files = [root / "requirements" / name for name in _LISTS]
    lines = [line for file in files if file.is_file() for line in file.read_text().splitlines()]
    listed = {line.removeprefix("-e").strip().removeprefix("./") for line in lines if line.startswith("-e ./plugins/")}
    there = {_relative(root, one.folder) for one in found}
    where = " or ".join(f"requirements/{name}" for name in _LISTS)
    return [f"{folder} is not listed in {where}." for folder in sorted(there - listed)] + [
        f"{where} lists {folder}, which is no distribution." for folder in sorted(listed - there)
    ]


def check_manifests(root: Path, found: list[Distribution]) -> list[str]:
    """Import every manifest in a process where torch, triton and transformers cannot be imported."""
    sources = [str(root), *(str(one.folder / "src") for one in found)]
    entries = [entry for one in found for entry in one.entry_points if entry[0] != "pytest11"]
    command = [sys.executable, "-c", _PROBE, json.dumps(sources), json.dumps(entries)]
    probe = subprocess.run(command, capture_output=True, text=True)
    if probe.returncode:
        return [f"The manifests could not be imported: {probe.stderr.strip().splitlines()[-1]}."]
    problems = []
    for key, answer in json.loads(probe.stdout).items():
        group, _, name = key.partition(":")
        if "error" in answer:
            problems.append(f"{key} cannot be imported without torch: {answer['error']}.")
        elif group != _HOOKS and (answer["group"], answer["name"]) != (group, name):
            problems.append(f"{key} is a descriptor of {answer['group']} named {answer['name']!r}; both must agree.")
    return problems


def check(root: Path) -> list[str]:
    """Return every problem of the checkout at `root`."""
    found, problems = find(root)
    needed = {name for one in found for name in one.requirements}
    for one in found:
        problems += check_names(root, one, shared=one.project.get("name") in needed)
    return [*problems, *check_duplicates(found), *check_listing(root, found), *check_manifests(root, found)]


def _relative(root: Path, folder: Path) -> str:
    return folder.relative_to(root).as_posix()


def _requirement_name(text: str) -> str:
    try:
        return Requirement(text).name
    except InvalidRequirement:
        return ""


def main() -> int:
    """Check this checkout and return the exit status."""
    problems = check(_ROOT)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
