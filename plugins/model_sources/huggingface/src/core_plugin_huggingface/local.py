"""References to files and directories on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from core.api import CheckpointError, ModelFiles
from core_plugin_huggingface.reference import parse

_PATH_STARTS = ("/", "./", "../", "~", ".\\", "..\\")
_PATH_ENDS = (".gguf", ".safetensors", ".json", "/", "\\")


class LocalSource:
    """The model source `local`."""

    def resolve(self, reference: str | None, *, revision: str | None = None) -> ModelFiles | None:
        """Return the file or directory that `reference` names, with `~` expanded; None if it is something else.

        A directory without `config.json` is taken only if the reference is plainly a path: `org/name` may also be an
        unrelated directory of a user who means the hub.

        Raises:
            CheckpointError: CORE-M104 when the reference is plainly a path and there is nothing.
        """
        if not reference:
            return None
        path = _existing(reference)
        if path is not None:
            path = path.resolve()
            name = path.stem if path.is_file() else path.name
            return ModelFiles(reference=reference, path=str(path), name=name, revision=revision)
        if not _is_path(reference):
            return None
        raise CheckpointError(
            "CORE-M104",
            f"the model '{reference}' looks like a path, but there is no file or directory "
            f"{Path(os.path.expanduser(reference)).absolute()}.",
            hint="Check the spelling and the working directory.",
        )


def _existing(reference: str) -> Path | None:
    """Return the file or directory that is meant, or None; what no path can be is none that exists."""
    try:
        path = Path(reference).expanduser()
        found = path.is_file() or (path.is_dir() and (_is_path(reference) or (path / "config.json").is_file()))
    except (OSError, RuntimeError, ValueError):  # too long, a home of nobody, a zero byte; or nobody may look there
        return None
    return path if found else None


def _is_path(reference: str) -> bool:
    """Say whether no other source can mean this: hub ids have one slash and no leading dot, or a scheme in front."""
    if parse(reference) is not None and ":" in reference:
        return False
    plain = reference in (".", "..") or reference.count("/") > 1
    return plain or reference.startswith(_PATH_STARTS) or reference.lower().endswith(_PATH_ENDS)
