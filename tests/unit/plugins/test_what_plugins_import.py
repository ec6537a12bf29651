"""Plugins of this repository are written as a stranger's are: on `core.api` alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECTS = sorted(path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("plugins/*/*/pyproject.toml"))
MORE = {
    "plugins/commands/testing": "drives core's own engine, worker and server in tests",
    "plugins/platforms/accelerator": "its runs without a card are on the fake device",
    "plugins/tool_parsers/engine": "shares samples for the kit among parsers",
}
"""Who imports something else of core, and why."""


def modules_of(file: Path) -> set[str]:
    """Return the modules that a source file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def imported(project: str) -> set[str]:
    """Return the modules of core that a project imports, but for the kit in its `conformance.py`."""
    found = set()
    for file in (ROOT / project / "src").rglob("*.py"):
        own = {name for name in modules_of(file) if name.split(".")[0] in ("core", "core_testing")}
        kit = file.name == "conformance.py"
        found |= {name for name in own if not (kit and name.startswith("core_testing"))}
    return found


@pytest.mark.parametrize("project", PROJECTS)
def test_a_plugin_imports_the_public_interface_alone(project):
    others = {name for name in imported(project) if name != "core.api" and not name.startswith("core.api.")}
    assert bool(others) == (project in MORE), f"{project} imports {sorted(others)}"


def test_the_public_interface_imports_nothing_else_of_core_not_even_for_types():
    found = {
        f"{file.name}: {name}"
        for file in (ROOT / "core" / "api").glob("*.py")
        for name in modules_of(file)
        if name.startswith("core.") and not name.startswith("core.api")
    }
    assert found == {"deprecation.py: core.version"}
