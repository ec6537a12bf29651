"""Every plugin that a page shows whole passes the kit: its files are taken from the page and installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "plugins" / "kinds"
FILE = re.compile(r"^```(?:toml|python) file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMES = sorted(page.stem for page in PAGES.glob("*.md") if "file=pyproject.toml" in page.read_text())
pytestmark = pytest.mark.timeout(900)  # the first test runs the kit over all of them

NOT_SHOWN = {
    "platforms": "its probe says: /dev/acme0 is absent",
    "models": "there is no tiny configuration for any of its architectures",
    "tool_servers": "it ships no ToolServerSample",
    "weight_loaders": "it ships no CheckpointSample",
    "weight_transfer": "it ships no TransferSample",
}
"""What the kit cannot check of a page's example, and why: it is shorter without a sample, or needs a device."""

RUN = """
import json, sys
import torch
from core_testing.conformance import Level
from core_testing.conformance.kit import jobs, subjects
from core_testing.conformance.report import Report
from core_testing.conformance.subject import Shared

torch.set_num_threads(1)
shared, report = Shared(), Report()
found = [one for one in subjects("", shared) if one.entry.dist in sys.argv[1:]]
shared.entries = [one.entry for one in found]
for subject in found:
    for job in jobs(subject, Level.L1):
        report.of(subject.entry).outcomes.append(job.run())
shared.close()
report.write("report.json")
"""


@pytest.fixture(scope="module")
def page_reports(tmp_path_factory) -> dict[str, list[dict]]:
    """Distribution -> what the kit found of each of its plugins, all examples being installed at once."""
    folder = tmp_path_factory.mktemp("pages")
    projects = [_install(FILE.findall((PAGES / f"{name}.md").read_text()), folder / "site") for name in NAMES]
    path = os.pathsep.join(filter(None, [str(folder / "site"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", RUN, *(one["name"] for one in projects)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    plugins = json.loads((folder / "report.json").read_text())["plugins"]
    return {one["name"]: [plugin for plugin in plugins if plugin["distribution"] == one["name"]] for one in projects}


def _install(files: list[tuple[str, str]], site: Path) -> dict:
    """Write a page's files, and the metadata that an installer makes of its project; return that."""
    written = dict(files)
    project = tomllib.loads(written.pop("pyproject.toml"))["project"]
    for path, source in written.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(source)
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Summary: {project['description']}", f"License-Expression: {project['license']}"]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    sections = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(sections))
    return project


@pytest.mark.covers("PRAC-01")
@pytest.mark.parametrize("page", NAMES)
def test_the_example_of_a_page_passes(page_reports, page):
    project = tomllib.loads(dict(FILE.findall((PAGES / f"{page}.md").read_text()))["pyproject.toml"])["project"]
    plugins, because = page_reports[project["name"]], NOT_SHOWN.get(page)
    assert len(plugins) == sum(map(len, project["entry-points"].values()))
    bad = [one for plugin in plugins for one in plugin["checks"] if one["status"] not in ("passed", "skipped")]
    unexpected = [one for one in bad if one["status"] == "failed" or because is None or because not in one["message"]]
    assert [f"{one['check']}: {one['message']}" for one in unexpected] == []
    assert {plugin["level"] for plugin in plugins} == {"L1" if because is None else "L0"}
