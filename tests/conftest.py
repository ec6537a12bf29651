"""What several areas of tests share: the wheels of this checkout, built once per session, and where to put them."""

from __future__ import annotations

import importlib.util
import shutil
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "plugins/routes/webui/src/core_plugin_webui/static/build.json"


@pytest.fixture(scope="session")
def fresh_environment() -> ModuleType:
    """The module that builds wheels and makes environments."""
    path = ROOT / "tests" / "install" / "fresh_environment.py"
    spec = importlib.util.spec_from_file_location("fresh_environment", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def projects() -> list[Path]:
    """Every distribution of this checkout: core, its plugins, the examples."""
    found = [*ROOT.glob("plugins/*/*/pyproject.toml"), *ROOT.glob("examples/plugins/*/pyproject.toml")]
    return [ROOT, *sorted(file.parent for file in found)]


@pytest.fixture(scope="session")
def bundle() -> list[str]:
    """The plugins that core's distribution depends on, so that every installation has them."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return [name for text in needed if (name := Requirement(text).name).startswith("core-plugin-")]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory, fresh_environment, projects) -> dict[Path, Path]:
    """Project -> its wheel. Compiling the native one takes long, so every area takes its wheels from here."""
    if not PAGES.is_file() and shutil.which("npm") is None:
        pytest.skip("npm is not installed here, without which core-plugin-webui has no wheel")
    built = fresh_environment.build_wheels(projects, tmp_path_factory.mktemp("wheels"))
    by_name = {wheel.name.partition("-")[0]: wheel for wheel in built}
    names = {path: tomllib.loads((path / "pyproject.toml").read_text())["project"]["name"] for path in projects}
    return {path: by_name[name.replace("-", "_")] for path, name in names.items()}
