"""Earlier findings of the doctor: a plugin that was sound is examined again only when something changes for it.

Sound is a plugin on which there were notes at most. What it depends on is in its key: its code and that of plugins that
its distribution requires, core's code, Python, the import path, and the version of every distribution. What looks at
the machine, hook modules, and what comes from plugin files is never remembered.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from core.api import InstalledPlugin, InstalledPlugins, PluginError
from core_plugin_author.doctor.finding import Finding

log = logging.getLogger(__name__)

_LOOK_AT_THE_MACHINE = ("core.plugins", "core.platforms")
"""Groups of plugins that are examined each time."""


class Remembered:
    """Findings on sound plugins, in a file of this environment.

    Args:
        installed: What tells the code of a distribution, and the kinds.
        path: The file; one that is missing or damaged is empty.
        plugins: All distributions of plugins: the code of those that a plugin requires counts.
        fresh: Whether everything is to be examined again.
    """

    def __init__(
        self, installed: InstalledPlugins, path: Path, plugins: Collection[str], *, fresh: bool = False
    ) -> None:
        self._installed = installed
        self._path = path
        self._fresh = fresh
        self._plugins = {_plain(name) for name in plugins}
        self._digests: dict[str, str | None] = {}
        self._environment = _environment()
        self._known = _read(path)

    def findings(self, entry: InstalledPlugin) -> list[Finding] | None:
        """Return what was found on a plugin that nothing has changed for; None to examine it."""
        if self._fresh:
            return None
        try:
            kept = self._known[_name(entry)]
            if kept["key"] == self._key(entry):
                return [Finding(**one) for one in kept["findings"]]
        except (LookupError, TypeError):
            pass
        return None

    def keep(self, entry: InstalledPlugin, findings: Sequence[Finding]) -> None:
        """Remember a plugin, or forget it if it is not sound."""
        key = self._key(entry)
        if key is None or any(finding.level != "note" for finding in findings):
            self._known.pop(_name(entry), None)
        else:
            self._known[_name(entry)] = {"key": key, "findings": [asdict(finding) for finding in findings]}

    def write(self) -> None:
        """Write the file; without a place for it, everything is examined next time."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor, fresh = tempfile.mkstemp(dir=self._path.parent)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(self._known, file)
            os.replace(fresh, self._path)
        except OSError as error:
            log.debug("what the doctor found is not kept: %s", error)

    def _key(self, entry: InstalledPlugin) -> str | None:
        """Return a digest of what the findings depend on; None if that cannot be told."""
        own = entry.group.startswith("core.") and entry.group in self._installed.kinds()
        if entry.group in _LOOK_AT_THE_MACHINE or not own:
            return None
        code = [self._digest(name) for name in self._of(entry.dist)]
        if None in code:
            return None
        return _hashed([asdict(entry), code, self._environment])

    def _of(self, dist: str) -> list[str]:
        """Return a distribution, core, and the plugin distributions that it requires."""
        try:
            required = {_plain(Requirement(text).name) for text in metadata.requires(dist) or ()}
        except (metadata.PackageNotFoundError, InvalidRequirement):
            required = set()
        return sorted({_plain(dist), "core", *(required & self._plugins)})

    def _digest(self, name: str) -> str | None:
        if name not in self._digests:
            try:
                self._digests[name] = self._installed.code_digest(name)
            except PluginError:
                self._digests[name] = None
        return self._digests[name]


def remembered_file() -> Path:
    """Return where this environment's findings are kept: in `XDG_CACHE_HOME`, `~/.cache` by default."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return base / "core" / "doctor" / f"{_hashed([sys.prefix])[:16]}.json"


def _plain(name: str) -> str:
    """Return the name of a distribution in its comparable form."""
    return str(canonicalize_name(name))


def _environment() -> str:
    """Return a digest of Python, the import path, and the version of every distribution."""
    versions = sorted(f"{dist.metadata['Name']} {dist.version}" for dist in metadata.distributions())
    return _hashed([sys.version, [folder for folder in sys.path if folder], versions])


def _name(entry: InstalledPlugin) -> str:
    return f"{entry.group}:{entry.name}@{_plain(entry.dist)}"


def _hashed(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
