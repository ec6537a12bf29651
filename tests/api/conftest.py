"""The example of a kind page as an installed distribution."""

from __future__ import annotations

import importlib
import os
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.plugins.entry import Entry
from core_testing.tinymodels import tiny_llama

ROOT = Path(__file__).parents[2]
KINDS = ROOT / "docs" / "plugins" / "kinds"
FILE = re.compile(r"^```(?:toml|python) file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Example:
    """One page: its text, the project its example describes, and the entries that the example installs."""

    name: str
    text: str
    project: dict
    entries: list[Entry]


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Return a function that installs the example of a page."""
    before = set(sys.modules)

    def install(page: str) -> Example:
        text = (KINDS / f"{page}.md").read_text()
        files = dict(FILE.findall(text))
        project = tomllib.loads(files.pop("pyproject.toml"))["project"]
        site = tmp_path / page
        info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        points = project["entry-points"]
        (info / "entry_points.txt").write_text(
            "\n".join(
                f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in found.items())
                for group, found in points.items()
            )
        )
        for path, source in files.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(source)
        monkeypatch.syspath_prepend(str(site))
        path = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))  # for processes that an example starts
        importlib.invalidate_caches()
        entries = [
            Entry(group, name, project["name"], project["version"], value)
            for group, found in points.items()
            for name, value in found.items()
        ]
        return Example(page, text, project, entries)

    yield install
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    for name in [name for name in sys.modules if name.startswith("acme_core_") and name not in before]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    return str(tiny_llama(tmp_path_factory.mktemp("models") / "llama"))
