"""Write docs/capabilities.md: every capability, and the tests that show it.

The wording is in `tools/capabilities.toml`; a test shows a capability when it carries `@pytest.mark.covers("ID")`.
Marks are read from the source, so nothing is imported. With `--check` nothing is written: exit status 1 means stale.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_PATTERNS = ("tests/**/test_*.py", "plugins/*/*/tests/**/test_*.py")

Wording = dict[str, dict[str, str]]
"""Area -> id -> capability."""

_MISSING = "Missing"
"""The table of `tools/capabilities.toml` that says what a capability lacks, by id."""


def covers_of(node: ast.AST) -> list[str]:
    """Return the ids of a `pytest.mark.covers(...)` expression, else nothing."""
    match node:
        case ast.Call(func=ast.Attribute(attr="covers", value=ast.Attribute(attr="mark")), args=args):
            return [arg.value for arg in args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return []


def marks_in(source: str) -> Iterator[tuple[str, str]]:
    """Yield `(id, test name)` of every mark; a module-wide `pytestmark` has an empty name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for decorator in node.decorator_list:
                for inner in ast.walk(decorator):  # also the marks of single parameters
                    yield from ((identifier, node.name) for identifier in covers_of(inner))
        elif isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "pytestmark" for target in node.targets):
            for inner in ast.walk(node.value):
                yield from ((identifier, "") for identifier in covers_of(inner))


def collect(root: Path) -> dict[str, list[str]]:
    """Return id -> tests, as pytest names them, in order of their files."""
    shown: dict[str, list[str]] = {}
    for path in sorted({path for pattern in _PATTERNS for path in root.glob(pattern)}):
        for identifier, name in marks_in(path.read_text()):
            test = path.relative_to(root).as_posix() + (f"::{name}" if name else "")
            tests = shown.setdefault(identifier, [])
            if test not in tests:
                tests.append(test)
    return shown


def state_of(tests: list[str], missing: str | None) -> str:
    """Return the state of a capability: `planned` without tests, `part` while something is missing, else `shown`."""
    if not tests:
        return "planned"
    return f"part; missing: {missing}" if missing else "shown"


def render(wording: Wording, shown: dict[str, list[str]], missing: dict[str, str]) -> str:
    """Return the page."""
    partly = len(shown.keys() & missing.keys())
    lines = [
        "# Capabilities",
        "",
        "Written by `tools/capabilities.py` from `tools/capabilities.toml` and the marks on the tests; do not edit.",
        "*Shown*: the named tests show all of the capability on every run of the test suite; *part*: all but what is",
        "missing; *planned*: no test shows it yet.",
        "",
        f"Of {sum(map(len, wording.values()))}, {len(shown) - partly} are shown, {partly} in part.",
    ]
    for area, rows in wording.items():
        lines += ["", f"## {area}", "", "| id | capability | state | test |", "|---|---|---|---|"]
        for identifier, text in rows.items():
            tests = shown.get(identifier, [])
            named = "<br>".join(f"`{test}`" for test in tests)
            lines.append(f"| {identifier} | {text} | {state_of(tests, missing.get(identifier))} | {named} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None, root: Path = _ROOT) -> int:
    """Write or check the page and return the exit status."""
    parser = argparse.ArgumentParser(description="Write docs/capabilities.md from the marks on the tests.")
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    check = parser.parse_args(arguments).check
    wording: Wording = tomllib.loads((root / "tools" / "capabilities.toml").read_text())
    missing, shown = wording.pop(_MISSING, {}), collect(root)
    if unknown := sorted({*shown, *missing}.difference(*wording.values())):
        print(f"Unknown capabilities are claimed: {', '.join(unknown)}; tools/capabilities.toml lists the known ones.")
        return 1
    page, path = render(wording, shown, missing), root / "docs" / "capabilities.md"
    if not check:
        path.write_text(page)
    elif not path.exists() or path.read_text() != page:
        print("docs/capabilities.md is stale: run `python tools/capabilities.py`.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
