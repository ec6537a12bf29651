"""Plugins in the metadata of distributions. No plugin code runs."""

from __future__ import annotations

import importlib.metadata
import json
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from core.api.errors import PluginError
from core.plugins.entry import Entry
from core.plugins.kinds import KINDS_GROUP, OPTION_SECTION
from core.plugins.known import normalise
from core.plugins.unchanged import Unchanged

log = logging.getLogger(__name__)

DEFINING = (KINDS_GROUP, OPTION_SECTION.group)
"""Groups whose entry points say which options there are."""


def installed() -> Iterator[Entry]:
    """Yield the entries of each distribution once: the first on `sys.path` wins, as it does on import.

    Those of core's groups come first, then those of the groups that entry points of `core.kinds` define.
    """
    seen: set[str] = set()
    defined: set[str] = set()
    for entries in _each(_entries, seen):
        defined |= {entry.name for entry in entries if entry.group == KINDS_GROUP}
        yield from entries
    if defined:  # nobody else pays for a second look
        for entries in _each(_others, set()):
            yield from (entry for entry in entries if entry.group in defined)


def definitions() -> list[Entry]:
    """Return the entry points that define kinds or options; of other distributions nothing but one file is read."""
    found = (dist for dist in importlib.metadata.distributions() if _defines(_text_of(dist)))
    return [one for entries in _each(_entries, set(), found) for one in entries if one.group in DEFINING]


def _defines(text: str) -> bool:
    return any(f"[{group}]" in text for group in DEFINING)


def _text_of(dist: importlib.metadata.Distribution) -> str:
    try:
        return _texts.of(dist)
    except (OSError, UnicodeDecodeError):
        return ""  # the catalogue tells of it


def _each(
    read: Unchanged[list[Entry]], seen: set[str], dists: Iterable[importlib.metadata.Distribution] | None = None
) -> Iterator[list[Entry]]:
    for dist in importlib.metadata.distributions() if dists is None else dists:
        try:
            entries = read.of(dist)
        except PluginError as error:
            log.warning("%s", error)
            continue
        if entries and (name := normalise(entries[0].dist)) not in seen:
            seen.add(name)
            yield entries


def entries_of(dist: importlib.metadata.Distribution) -> list[Entry]:
    """Return what a distribution offers to core's groups.

    Raises:
        PluginError: CORE-P131, its metadata cannot be read.
    """
    return _read(dist, core=True)


def other_entries_of(dist: importlib.metadata.Distribution) -> list[Entry]:
    """Return the entry points of a distribution that are in none of core's groups. Raises as `entries_of`."""
    return _read(dist, core=False)


def _read(dist: importlib.metadata.Distribution, *, core: bool) -> list[Entry]:
    try:
        text = _texts.of(dist)
        if not text or (core and "[core." not in text):
            return []  # reading the name parses the whole metadata, so it is done for plugins only
        points = [point for point in dist.entry_points if point.group.startswith("core.") == core]
        if not points:
            return []
        metadata = dist.metadata  # parsed anew whenever it is asked for, and by `dist.version` too
        name, version = metadata["Name"], metadata["Version"]
        if not (name and version):
            raise ValueError("it states no name or version")
    except Exception as error:
        place = getattr(dist, "_path", None) or dist.locate_file("")
        reason = " ".join(str(error).split()) or type(error).__name__
        hint = "Install it again, or delete that folder; until then its plugins take no part."
        raise PluginError("CORE-P131", f"plugin metadata in {place} cannot be read: {reason}.", hint=hint) from error
    return [Entry(point.group, point.name, name, version, point.value) for point in points]


_texts = Unchanged(lambda dist: dist.read_text("entry_points.txt") or "", ("entry_points.txt",))
_FILES = ("entry_points.txt", "METADATA", "PKG-INFO")
_entries = Unchanged(entries_of, _FILES)
_others = Unchanged(other_entries_of, _FILES)


def project_of(dist: importlib.metadata.Distribution) -> Path | None:
    """Return the source folder of an editable distribution, None for any other."""
    try:
        direct = json.loads(dist.read_text("direct_url.json") or "{}")
        editable = bool(direct.get("dir_info", {}).get("editable"))
        url = urlsplit(direct.get("url", ""))
    except (ValueError, AttributeError):
        return None
    return Path(unquote(url.path)) if editable and url.scheme == "file" else None
