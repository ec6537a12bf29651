"""The demo model's distribution for the conformance kit: once with a file in it, once without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core_plugin_smollm2.source import DISTRIBUTION, PACKAGE
from core_testing.conformance import SourceSample


def samples() -> Iterator[SourceSample]:
    """Yield a distribution with a model file, and one that lacks it."""
    yield SourceSample("with a model file", make=_install, environment=_first_on_path)
    yield SourceSample("without a model file", missing="smollm2", environment=_without_file)


def _install(folder: Path) -> str:
    """Write a distribution of the demo model's name with a file in the place of the model."""
    _distribution(folder)
    (folder / PACKAGE / "tiny.gguf").write_bytes(b"GGUF")
    return "SmolLM2"


def _without_file(folder: Path) -> dict[str, str]:
    _distribution(folder)
    return _first_on_path(folder)


def _first_on_path(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(folder)}


def _distribution(folder: Path) -> None:
    info = folder / f"{PACKAGE}-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 9.9\n")
    (folder / PACKAGE).mkdir()
    (folder / PACKAGE / "__init__.py").touch()
