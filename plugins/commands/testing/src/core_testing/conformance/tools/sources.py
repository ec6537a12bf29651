"""A plugin's source files, read without importing them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from core.plugins.entry import Entry


def python_files(package: str) -> list[Path]:
    """Return the Python files of a top-level package or module; none if it cannot be found."""
    spec = find_spec(package)
    if spec is None:
        return []
    if spec.submodule_search_locations is None:
        return [Path(spec.origin)] if spec.origin else []
    return sorted(file for folder in spec.submodule_search_locations for file in Path(folder).rglob("*.py"))


def imported_names(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of everything that a source file imports, by statement or by `import_module`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Call) and _imports(node.func) and node.args:
            name = getattr(node.args[0], "value", None)
            if isinstance(name, str):
                yield node.lineno, name


def uses_torch(entries: Sequence[Entry], dist: str) -> bool:
    """Say whether a source file of the distribution's plugins imports torch."""
    packages = {entry.value.partition(":")[0].split(".")[0] for entry in entries if entry.dist == dist}
    files = [file for package in packages for file in python_files(package)]
    return any(name.split(".")[0] == "torch" for file in files for _, name in imported_names(file))


def _imports(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")
