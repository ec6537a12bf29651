"""Arguments of `core plugins install`: requirements, folders, and bundles of core's own plugins."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from core.api.errors import PluginError
from core.plugins.metadata import project_of

PREFIX = "core-plugin-"
_LINE = re.compile(r"^(-e\s+|--editable[\s=])(?P<path>\S+)")


def checkout() -> Path | None:
    """Return the folder of the checkout from which core is installed, or None when it came from an index."""
    try:
        return project_of(importlib.metadata.distribution("core"))
    except importlib.metadata.PackageNotFoundError:
        return None


def bundles(root: Path | None) -> list[str]:
    """Return the names of the bundles that the checkout has: its requirement files that name plugins."""
    files = sorted((root / "requirements").glob("*.txt")) if root else []
    return [file.stem for file in files if any(_folders(file))]


def install_arguments(specs: Sequence[str], root: Path | None) -> list[str]:
    """Return pip's arguments for `specs`: a bundle's distributions, an existing folder, or a requirement as it is.

    In a checkout a bundle `cpu` means the folders of `requirements/cpu.txt`, installed editable, and a plain name that
    is one of the checkout's plugins means its folder. Elsewhere a plain name means `core-plugin-NAME` of the index.
    """
    arguments: list[str] = []
    for spec in specs:
        folders = _projects(spec, root)
        arguments += [word for folder in folders for word in ("-e", str(folder))] or [_full_name(spec)]
    return arguments


def distributions(specs: Sequence[str], root: Path | None) -> list[str]:
    """Return the distributions that `specs` mean, for removing them; a bundle of an index is not known there.

    Raises:
        PluginError: CORE-P320 for core itself.
    """
    names: list[str] = []
    for spec in specs:
        names += [_project_name(folder) for folder in _projects(spec, root)] or [_full_name(spec)]
    names = [name for name in names if name != "core"]  # a bundle names core too
    if not names:
        raise PluginError("CORE-P320", "core does not uninstall itself.", hint="pip uninstall core")
    return names


def _projects(spec: str, root: Path | None) -> list[Path]:
    """Return the projects that `spec` means: a bundle's, a folder, or a plugin of the checkout; else none."""
    if root and spec in bundles(root):
        return _folders(root / "requirements" / f"{spec}.txt")
    if _is_project(Path(spec)):
        return [Path(spec)]
    if root and re.fullmatch(r"[a-z0-9][a-z0-9_-]*", spec):
        plugins = filter(_is_project, sorted(root.glob("plugins/*/*")))
        return [folder for folder in plugins if _project_name(folder) == _full_name(spec)]
    return []


def _is_project(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file()


def _full_name(spec: str) -> str:
    """Return `core-plugin-NAME` for a plain short name; what has a version, a path, or a hyphen stays as it is."""
    short = re.fullmatch(r"[a-z0-9][a-z0-9_]*", spec)
    return PREFIX + spec.replace("_", "-") if short and spec != "core" else spec


def _folders(file: Path) -> list[Path]:
    """Return the project folders that a requirement file of the checkout names."""
    lines = file.read_text(encoding="utf-8").splitlines()
    paths = [match["path"] for line in lines if (match := _LINE.match(line.strip()))]
    return [(file.parent.parent / path).resolve() for path in paths]


def _project_name(folder: Path) -> str:
    try:
        return str(tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"])
    except (OSError, ValueError, KeyError) as error:
        raise PluginError("CORE-P320", f"{folder} is not a Python project: {error}.") from error
