from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYPROJECT = """
[project]
name = "core-plugin-{name}"
dependencies = ["core>=0.1"]
[project.entry-points."core.schedulers"]
{entry} = "core_plugin_{name}.manifest:SPEC"
"""
MANIFEST = """
from core.api import SchedulerPolicySpec
SPEC = SchedulerPolicySpec(name="{entry}", impl="x.y:Z", api=1, summary="s")
"""


@pytest.fixture(scope="module")
def workspace() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_workspace", ROOT / "tools" / "check_workspace.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Add a sound plugin to a checkout under `tmp_path`; return its folder."""
    (tmp_path / "requirements").mkdir()
    listing = tmp_path / "requirements" / "cpu.txt"
    listing.write_text("-e .\n")

    def add(name: str, entry: str | None = None) -> Path:
        folder = tmp_path / "plugins" / "schedulers" / name
        package = folder / "src" / f"core_plugin_{name}"
        package.mkdir(parents=True)
        (folder / "README.md").write_text("# It\n")
        (package / "__init__.py").touch()
        (package / "manifest.py").write_text(MANIFEST.format(entry=entry or name))
        (folder / "pyproject.toml").write_text(PYPROJECT.format(name=name, entry=entry or name))
        listing.write_text(f"{listing.read_text()}-e ./plugins/schedulers/{name}\n")
        return folder

    return add


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_sound_checkout_has_no_problem(workspace: ModuleType, make: Callable[..., Path], tmp_path: Path) -> None:
    make("one")
    make("two")
    assert workspace.check(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("pyproject.toml", "[project]", "[project", "no readable pyproject.toml"),
        ("pyproject.toml", '"core-plugin-one"', '"core-one"', "names are core-plugin-<name>"),
        ("pyproject.toml", '"core>=0.1"', '"pydantic"', "core is not among its dependencies"),
        ("pyproject.toml", "core.schedulers", "core.sheduler", "is not one of core's"),
        ("pyproject.toml", "manifest:SPEC", "policy:SPEC", "not into core_plugin_one.manifest"),
        ("src/core_plugin_one/manifest.py", "from core", "import torch\nfrom core", "cannot be imported without torch"),
        ("src/core_plugin_one/manifest.py", 'name="one"', 'name="uno"', "both must agree"),
        ("src/core_plugin_one/manifest.py", "SchedulerPolicySpec", "ExecutorSpec", "descriptor of core.executors"),
    ],
)
def test_each_fault_is_a_sentence(
    workspace: ModuleType, make: Callable[..., Path], tmp_path: Path, file: str, old: str, new: str, sentence: str
) -> None:
    edit(make("one") / file, old, new)
    assert any(sentence in problem for problem in workspace.check(tmp_path))


def test_listing_and_folders_must_agree(workspace: ModuleType, make: Callable[..., Path], tmp_path: Path) -> None:
    make("one")
    edit(tmp_path / "requirements" / "cpu.txt", "schedulers/one", "schedulers/gone")
    assert workspace.check(tmp_path) == [
        "plugins/schedulers/one is not listed in requirements/cpu.txt or requirements/test.txt.",
        "requirements/cpu.txt or requirements/test.txt lists plugins/schedulers/gone, which is no distribution.",
    ]


def test_one_name_belongs_to_one_plugin(workspace: ModuleType, make: Callable[..., Path], tmp_path: Path) -> None:
    make("one", entry="same")
    make("two", entry="same")
    assert workspace.check(tmp_path) == ["core.schedulers:same is declared 2 times."]


def test_missing_files_are_named(workspace: ModuleType, make: Callable[..., Path], tmp_path: Path) -> None:
    folder = make("one")
    (folder / "README.md").unlink()
    (folder / "src" / "core_plugin_one" / "manifest.py").unlink()
    problems = " ".join(workspace.check(tmp_path))
    assert "README.md is missing" in problems and "manifest.py is missing" in problems


@pytest.mark.covers("PKG-01")
def test_this_checkout_is_sound(workspace: ModuleType) -> None:
    assert workspace.check(ROOT) == []
