"""The code of a distribution as a digest: it changes with the files, whatever the version says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from core.api.errors import PluginError
from core.plugins.metadata import project_of

_BYTECODE = ".pyc"


def code_digest(name: str) -> str:
    """Return the SHA-256, hexadecimal, of the names and contents of a distribution's files.

    Of an installed distribution these are the files that its RECORD lists, as they are now; of an editable one, and of
    one without a RECORD, those in the packages that its entry points name. Bytecode, metadata and scripts do not count.

    Raises:
        PluginError: CORE-P175, it is not installed, or a file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        dist = distribution(name)
        files = _edited(dist) if project_of(dist) or dist.files is None else _installed(dist)
        for label, path in sorted(files):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"{label}\0{content}\n".encode())
    except (PackageNotFoundError, OSError, ValueError) as error:
        raise PluginError(
            "CORE-P175",
            f"the code of distribution {name} cannot be read: {type(error).__name__}: {error}.",
            hint=f"Install {name} again.",
        ) from error
    return digest.hexdigest()


def code_digests(names: Iterable[str]) -> dict[str, str]:
    """Return `distribution -> digest`, by name. Raises as `code_digest`."""
    return {name: code_digest(name) for name in sorted(set(names))}


def _installed(dist: Distribution) -> Iterator[tuple[str, Path]]:
    for file in dist.files or ():
        outside = file.parts[0] == ".." or file.parts[0].endswith((".dist-info", ".egg-info"))
        if not outside and file.suffix != _BYTECODE:
            yield file.as_posix(), Path(str(file.locate()))


def _edited(dist: Distribution) -> Iterator[tuple[str, Path]]:
    """Yield the files of the packages that entry points name; nothing is imported."""
    for package in sorted({point.module.partition(".")[0] for point in dist.entry_points}):
        spec = find_spec(package)
        if spec is None:
            raise FileNotFoundError(f"its package {package} is not there")
        folders = [Path(place) for place in spec.submodule_search_locations or ()]
        for folder in folders:
            yield from _below(package, folder)
        if not folders and spec.origin:
            yield Path(spec.origin).name, Path(spec.origin)


def _below(package: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in inside.parts)
        if not hidden and path.suffix != _BYTECODE and path.is_file():
            yield f"{package}/{inside.as_posix()}", path
