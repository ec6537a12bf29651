"""The test plugins as installed distributions: their sources on `sys.path`, with the metadata an installer writes."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from pathlib import Path

import pytest

from core.testing.tinymodels import tiny_llama, tiny_model

PLUGINS = Path(__file__).parent / "plugins"


def install(name: str, site: Path) -> list[str]:
    """Write the metadata of one plugin into `site`; return the directories to put on `sys.path`."""
    project = tomllib.loads((PLUGINS / name / "pyproject.toml").read_text())["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    sections = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(sections))
    return [str(site), str(PLUGINS / name / "src")]


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """Return a function that installs test plugins by name, in this process and in its children."""

    def make(*names: str) -> None:
        folders = [folder for name in names for folder in install(name, tmp_path / f"site-{name}")]
        for folder in dict.fromkeys(folders):
            monkeypatch.syspath_prepend(folder)
        before = os.environ.get("PYTHONPATH")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*dict.fromkeys(folders), *([before] if before else [])]))
        importlib.invalidate_caches()

    yield make
    for name in [name for name in sys.modules if name.partition(".")[0].startswith("seam_")]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    return str(tiny_llama(tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture(scope="session")
def windowed(tmp_path_factory):
    """A model whose layers all have a window of five tokens."""
    return str(tiny_model(tmp_path_factory.mktemp("models") / "mistral", "mistral_window"))


@pytest.fixture
def prompt():
    """`prompt(length, seed)` -> a prompt of that many token ids."""
    return lambda length, seed=0: {"prompt_token_ids": [3 + (i * 29 + seed * 7) % 90 for i in range(length)]}
