"""Every regular expression in the sources: where it is, what it is, and how it is used."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
LIBRARIES = ("re", "regex")
METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
ALL_MATCHES = {"sub", "subn", "split", "findall"}


@dataclass(frozen=True)
class Found:
    """A call of a library of regular expressions.

    Attributes:
        place: Its file and what it compiles, as written.
        pattern: The compiled pattern; None where it is made of what is known at run time alone.
        methods: How it is used.
    """

    place: str
    pattern: Any
    methods: tuple[str, ...]


@cache
def files() -> tuple[Path, ...]:
    """Return the files of core and of all plugins."""
    found = [*(ROOT / "core").rglob("*.py"), *ROOT.glob("plugins/*/*/src/**/*.py")]
    return tuple(sorted(path for path in found if "templates" not in path.parts))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def found() -> Iterator[Found]:
    """Yield every call."""
    for path in files():
        source = path.read_text(encoding="utf-8")
        if not any(f"import {name}" in source for name in LIBRARIES):
            continue
        where = path.relative_to(ROOT).as_posix()
        for node in ast.walk(tree(path)):
            function = getattr(node, "func", None)
            if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)):
                continue
            if function.value.id in LIBRARIES and function.attr in ("compile", *METHODS):
                used = used_as(path, node) if function.attr == "compile" else (function.attr,)
                written = ast.unparse(node.args[0])
                yield Found(f"{where}: {written}", compiled(path, function.value.id, node), used)


def bare_imports() -> list[str]:
    """Return the files that import single names of a library, where calls would not be found."""
    return [
        path.relative_to(ROOT).as_posix()
        for path in files()
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.ImportFrom) and node.module in LIBRARIES)
        or (isinstance(node, ast.Import) and any(one.name in LIBRARIES and one.asname for one in node.names))
    ]


def compiled(path: Path, library: str, call: ast.Call) -> Any:
    """Return the pattern of a call, if the names of its module are enough to know it."""
    flags = [one.value for one in call.keywords if one.arg == "flags"]
    if call.func.attr == "compile" and len(call.args) > 1:  # type: ignore[attr-defined]
        flags.append(call.args[1])
    elif call.func.attr in ("match", "fullmatch", "search", "findall", "finditer") and len(call.args) > 2:  # type: ignore[attr-defined]
        flags.append(call.args[2])
    names = vars(importlib.import_module(module(path)))
    try:
        values = [eval(ast.unparse(one), dict(names)) for one in (call.args[0], *flags)]  # as the module itself would
    except NameError:
        return None
    return importlib.import_module(library).compile(*values)


def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[parts.index("src") + 1 :] if "src" in parts else parts
    return ".".join(parts).removesuffix(".__init__")


def used_as(path: Path, call: ast.Call) -> tuple[str, ...]:
    """Return the methods that are called on a pattern, in its module and, of a public name, elsewhere."""
    name = next(
        (
            ast.unparse(target)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Assign) and node.value is call
            for target in node.targets
        ),
        "",
    )
    methods = {
        node.attr
        for other in files()
        if name and (other == path or (not name.startswith("_") and name in other.read_text(encoding="utf-8")))
        for node in ast.walk(tree(other))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == name and node.attr in METHODS
    }
    return tuple(sorted(methods)) or ("search",)
