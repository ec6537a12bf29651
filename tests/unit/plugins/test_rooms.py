"""Rooms of core import in one direction: no circle between them, imports for types and inside functions counted."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

CORE = Path(__file__).parents[3] / "core"
ROOMS = (
    "api",
    "options",
    "plugins",
    "config",
    "selection",
    "engine",
    "ops",
    "layers",
    "worker",
    "terminal",
    "frontend",
    "server",
    "cli",
)
"""From the lowest to the highest; a module that stands in no room is one of its own."""


def modules() -> dict[str, Path]:
    found = {".".join(("core", *path.relative_to(CORE).with_suffix("").parts)): path for path in CORE.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in found.items()}


def imported(path: Path) -> Iterator[str]:
    """Yield what a file imports of core, as `package.module` or `package.module.name`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def edges() -> dict[str, set[str]]:
    """Return room -> the rooms that it imports."""
    known = modules()
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        here = room_of(name)
        for target in imported(path):
            module = target if target in known else target.rpartition(".")[0]
            if module in known and room_of(module) != here:
                found.setdefault(here, set()).add(room_of(module))
    return found


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "core"


def test_there_is_no_circle_between_rooms():
    order = list(TopologicalSorter(edges()).static_order())  # raises CycleError, which names the circle
    assert set(ROOMS) <= set(order)


def test_every_room_imports_lower_ones_alone():
    rank = {room: number for number, room in enumerate(ROOMS)}
    upwards = {
        f"{room} -> {other}"
        for room, others in edges().items()
        for other in others
        if rank.get(other, -1) > rank.get(room, 99)
    }
    assert upwards == set()


def test_the_rooms_are_the_folders():
    assert {path.parent.name for path in CORE.glob("*/__init__.py")} == set(ROOMS)
