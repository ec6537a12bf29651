"""docs/errors.md and the code agree on the error codes."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE = re.compile(r"CORE-[A-Z]\d{3}")


def _sources() -> dict[str, set[str]]:
    """Return code -> the distributions whose source raises it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in [*ROOT.glob("core/**/*.py"), *ROOT.glob("plugins/*/*/src/**/*.py")]:
        owner = "core" if path.is_relative_to(ROOT / "core") else "/".join(path.relative_to(ROOT).parts[:3])
        for code in CODE.findall(path.read_text()):
            found[code].add(owner)
    return found


def _documented() -> list[str]:
    lines = (ROOT / "docs" / "errors.md").read_text().splitlines()
    return [CODE.findall(line)[0] for line in lines if line.startswith("| CORE-")]


def test_every_code_is_documented_exactly_once():
    documented = _documented()
    assert len(documented) == len(set(documented))
    assert set(_sources()) - set(documented) == set()


def test_no_documented_code_has_gone_out_of_use():
    assert set(_documented()) - set(_sources()) == set()
