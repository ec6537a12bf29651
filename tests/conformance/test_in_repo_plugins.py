"""Every plugin of the repository passes the kit that strangers use, in one run of the command that strangers run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _in_repo() -> list[tuple[str, str, str]]:
    """Return `(group, name, distribution)` of every entry point below plugins/."""
    found = []
    for path in sorted(ROOT.glob("plugins/*/*/pyproject.toml")):
        project = tomllib.loads(path.read_text())["project"]
        for group, entries in project.get("entry-points", {}).items():
            found += [(group, name, project["name"]) for name in entries if group.startswith("core.")]
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("conformance")
    command = [sys.executable, "-m", "pytest", "--core-plugin-conformance", "--core-conformance-level=L1"]
    command += ["--core-conformance-report", "report.json", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=280
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return json.loads((folder / "report.json").read_text())


@pytest.mark.covers("PLAT-01", "ATTN-01", "KV-01", "TOOL-01", "WT-01")
@pytest.mark.parametrize(("group", "name", "dist"), _in_repo(), ids=lambda value: value)
def test_the_plugin_passes(report, group, name, dist):
    mine = [one for one in report["plugins"] if (one["group"], one["name"], one["distribution"]) == (group, name, dist)]
    assert len(mine) == 1, f"{dist} is not installed"
    wrong = [
        f"{one['check']}: {one['message']}" for one in mine[0]["checks"] if one["status"] not in ("passed", "skipped")
    ]
    assert wrong == []
    kinds = {one["level"] for one in mine[0]["checks"]}
    assert mine[0]["level"] == max(kinds)


def test_the_report_says_what_it_holds_for(report):
    assert report["versions"].keys() >= {"core", "python", "torch"}
    assert report["format"] == 1
