"""The plugin of the README is what it says: built, installed, listed, and found sound by the conformance kit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)  # the first to ask for wheels may have to compile the native library
README = Path(__file__).parents[2] / "README.md"
FILE = re.compile(r"^```(?:toml|python)\n# (\S+?),?(?: [^\n]*)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALL = ["pip", "install", "--no-deps", "--no-build-isolation", "--quiet", "--no-index", "."]


@pytest.fixture
def project(tmp_path) -> Path:
    """The files that the README shows, in a directory of their own."""
    text = README.read_text(encoding="utf-8").partition("## Add a plugin")[2].partition("\n## ")[0]
    written = dict(FILE.findall(text))
    assert len(written) == 5 and "pyproject.toml" in written
    for name, source in written.items():
        path = tmp_path / "acme" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return tmp_path / "acme"


@pytest.mark.covers("PRAC-01")
def test_the_readmes_plugin_is_built_installed_and_passes_the_kit(environment, project, tmp_path):
    done = environment.run([environment.python, "-m", *INSTALL], cwd=project, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    done = environment.run([environment.core, "plugins", "list", "--kind", "tool_parsers"], cwd=tmp_path)
    assert re.search(r"acme +acme-core-parser +1\.0 +1 +stable +ok", done.stdout), done.stdout
    done = environment.run([environment.core, "plugins", "test", "acme"], cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    line = re.search(r"^(\S+)  core\.tool_parsers:acme  \(acme-core-parser 1\.0\)  (.*)$", done.stdout, re.MULTILINE)
    assert line is not None and line[1] == "L1" and "failed" not in line[2] and "unavailable" not in line[2], (
        done.stdout
    )
