"""Rows of the tables of tiny models that the tests of model plugins have."""

from __future__ import annotations

from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

MODELS = Path(__file__).resolve().parents[3] / "plugins" / "models"


def plugins() -> list[str]:
    """Return the plugins that have rows, by their folders."""
    return sorted(path.parts[-3] for path in MODELS.glob("*/tests/rows.py"))


@cache
def rows_of(plugin: str) -> list[Any]:
    """Return the rows of a plugin's models that generate."""
    spec = spec_from_file_location(f"rows_of_{plugin}", MODELS / plugin / "tests" / "rows.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(vars(module).get("ROWS", ()))
