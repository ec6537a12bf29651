"""What is in the wheels besides code: the licence, the page for an index, and types that a stranger's checker finds."""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)  # the first to ask for wheels may have to compile the native library
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugins" / "directive_parser" / "src" / "acme_core_directives"


@pytest.fixture(scope="session")
def ours(wheels):
    """The wheels of core and its plugins."""
    return [wheel for project, wheel in wheels.items() if "examples" not in project.parts]


def member(wheel, end):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(end))
        return archive.read(name).decode()


def test_every_wheel_has_the_licence_and_a_page_whose_links_work_anywhere(ours):
    licence = (ROOT / "LICENSE").read_text()
    assert len(ours) > 25
    for wheel in ours:
        metadata = member(wheel, ".dist-info/METADATA")
        assert member(wheel, ".dist-info/licenses/LICENSE") == licence
        assert re.search(r"\nLicense-Expression: Apache-2\.0( AND |\n)", metadata)
        assert "\nProject-URL: Homepage, https://github.com/core-serving/core\n" in metadata
        assert re.findall(r"\]\((?!https://|#)[^)\s]+\)", metadata) == []


def test_the_example_is_checked_strictly_against_the_types_of_the_wheel(environment, neutral):
    shutil.copytree(EXAMPLE, neutral / EXAMPLE.name)
    wrong = neutral / "wrong.py"
    wrong.write_text("from core.api import ToolParserSpec\n\nSPEC = ToolParserSpec(name=1, impl='a:B', api=1)\n")
    words = [environment.python, "-m", "mypy", "--strict", "--cache-dir", neutral / "cache"]
    checked = environment.run([*words, EXAMPLE.name], cwd=neutral, timeout=300)
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
    refused = environment.run([*words, wrong], cwd=neutral, timeout=300)
    assert refused.returncode == 1
    assert "[arg-type]" in refused.stdout and "[import-untyped]" not in refused.stdout


@pytest.mark.parametrize("project", [ROOT, ROOT / "plugins" / "quantization" / "awq"], ids=["core", "awq"])
def test_a_source_distribution_builds_the_same_page_and_licence_alone(project, wheels, fresh_environment, tmp_path):
    build = "import os, sys; os.chdir(sys.argv[1]); from hatchling.build import build_sdist; build_sdist(sys.argv[2])"
    fresh_environment.checked([sys.executable, "-P", "-c", build, project, tmp_path])
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(tmp_path, filter="data")
    (again,) = fresh_environment.build_wheels([archive.with_name(archive.name.removesuffix(".tar.gz"))], tmp_path)
    for end in (".dist-info/METADATA", ".dist-info/licenses/LICENSE"):
        assert member(again, end) == member(wheels[project], end)
    with zipfile.ZipFile(again) as new, zipfile.ZipFile(wheels[project]) as old:
        assert sorted(new.namelist()) == sorted(old.namelist())
