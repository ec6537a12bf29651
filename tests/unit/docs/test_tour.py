"""The tour and the README name only what exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LINK = re.compile(r"\[(?P<label>[^\]]+)\]\((?P<target>[^)#\s]+)\)")


def _links() -> list[tuple[Path, str, Path]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        (page, match["label"], (page.parent / match["target"]).resolve())
        for page in pages
        for match in LINK.finditer(page.read_text())
        if "://" not in match["target"]
    ]


def _names(path: Path) -> set[str]:
    """Return the classes, functions and `Class.method`s that a module defines."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{child.name}" for child in node.body if hasattr(child, "name")}
    return found


@pytest.mark.covers("PRAC-01")
def test_every_linked_name_is_defined_where_the_link_says():
    wrong = []
    for page, label, target in _links():
        match = re.fullmatch(r"`([A-Za-z_][\w.]*)`?s?`?", label)
        if target.suffix == ".py" and match and "/" not in label and not match[1].endswith(".py"):
            name = match[1]
            if name not in _names(target) and name[0].isupper():
                wrong.append((page.name, name, str(target.relative_to(ROOT))))
    assert wrong == []
