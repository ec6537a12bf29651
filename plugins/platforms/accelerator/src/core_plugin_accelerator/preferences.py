"""Preferences of cards as data: `preferences.toml` of a platform's package. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple


class Preference(NamedTuple):
    """One row of the table.

    Attributes:
        arch: Globs of the architectures that it is for.
        why: In a few words.
        points: Score adjustments, `"<group>:<name>" -> points`.
    """

    arch: tuple[str, ...]
    why: str
    points: dict[str, int]


def points_of(package: str, arch: str) -> dict[str, int]:
    """Return what a card of an architecture prefers: the sum of all rows that are for it."""
    total: dict[str, int] = {}
    for row in rows_for(table(package), arch):
        for name, points in row.points.items():
            total[name] = total.get(name, 0) + points
    return total


def rows_for(rows: Iterable[Preference], arch: str) -> list[Preference]:
    """Return the rows that are for an architecture."""
    return [row for row in rows if any(fnmatchcase(arch, glob) for glob in row.arch)]


@cache
def table(package: str) -> tuple[Preference, ...]:
    """Read a package's `preferences.toml`."""
    import tomllib  # only a platform that finds a card pays for these
    from importlib.resources import files

    data = tomllib.loads((files(package) / "preferences.toml").read_text(encoding="utf-8"))
    return tuple(Preference(tuple(row["arch"]), row["why"], row["points"]) for row in data["row"])
