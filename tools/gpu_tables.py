"""Tables of docs/gpu-selection.md: what is the same is told once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from core_plugin_accelerator.preferences import table

from core.selection.report import Row

_SHORTER = (
    (re.compile(r", the card (is|has) .*"), ""),
    (re.compile(r", not for gfx\w+"), ""),
    (re.compile(r"weights of the form \S+, not (.+)"), r"it multiplies with weights of the form \1"),
)
"""What says again which card or which weights it is about: the table does."""


def why_not(row: Row) -> str:
    """Return what speaks against a plugin; where it is for another type of device, that alone."""
    other = [reason for reason in row.reasons if reason.startswith("device ")]
    return "; ".join(dict.fromkeys(_short(reason) for reason in other or row.reasons)) or "a lower score"


def why_not_table(what: str, told: Mapping[tuple[str, str], Sequence[str]], whole: int) -> Iterator[str]:
    """Yield the lines of a table.

    Args:
        what: What plugins of this kind are called.
        told: Name and reasons -> what they are for, as `platform: thing`.
        whole: How many things there are on each platform: reasons that are for all of them name the platform alone.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for (name, why), where in told.items():
        alike.setdefault((why, "; ".join(_gathered(where, whole))), []).append(f"`{name}`")
    yield f"| {what} | why not | for |"
    yield "|---|---|---|"
    rows = sorted((", ".join(sorted(names)), why, where) for (why, where), names in alike.items())
    for names, why, where in rows:
        yield f"| {names} | {why.replace('|', chr(92) + '|')} | {where} |"


def _short(reason: str) -> str:
    for found, instead in _SHORTER:
        reason = found.sub(instead, reason)
    return reason


def _gathered(where: Sequence[str], whole: int) -> Iterator[str]:
    """Yield `platform: this, that` of `platform: this` and `platform: that`."""
    found: dict[str, list[str]] = {}
    for one in dict.fromkeys(where):
        platform, _, thing = one.partition(": ")
        found.setdefault(platform, []).append(thing)
    for platform, things in found.items():
        yield platform if len(things) == whole else f"{platform}: {', '.join(things)}"


def alike(rows: Sequence[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """Return rows of titles and cells, those with the same cells as one."""
    together: dict[tuple[str, ...], list[str]] = {}
    for title, cells in rows:
        together.setdefault(tuple(cells), []).append(title)
    return [(", ".join(dict.fromkeys(titles)), list(cells)) for cells, titles in together.items()]


def preferences_table(platforms: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table of the points that platforms give to other plugins."""
    yield "| platform | architectures | points | why |"
    yield "|---|---|---|---|"
    for name in platforms:
        for row in table(f"core_plugin_{name}"):
            points = ", ".join(f"`{key.partition(':')[2]}` +{value}" for key, value in row.points.items())
            yield f"| {name} | {', '.join(f'`{glob}`' for glob in row.arch)} | {points} | {row.why} |"
