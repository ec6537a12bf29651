"""Build backend: scikit-build-core, plus a copy of the native sources in source distributions.

The sources live in the repository's `csrc`, outside this project; an archive of the project must bring them along.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from scikit_build_core.build import *  # noqa: F403  # every other hook of the backend, whichever this version has
from scikit_build_core.build import build_sdist as _build_sdist

_COPY = Path("_csrc")
_SOURCES = Path("../../../csrc")
_PARTS = ("CMakeLists.txt", "cpu")


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Build the archive with the native sources under `_csrc`."""
    if not _SOURCES.is_dir():  # already inside an unpacked archive
        return _build_sdist(sdist_directory, config_settings)
    shutil.rmtree(_COPY, ignore_errors=True)
    try:
        for part in _PARTS:
            _copy(_SOURCES / part, _COPY / part)
        return _build_sdist(sdist_directory, config_settings)
    finally:
        shutil.rmtree(_COPY, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)
