"""The report: per plugin its level and the outcome of every check, with the versions that it holds for."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from core import __version__
from core.api.errors import ConfigError
from core.plugins.catalog import Entry
from core.testing.conformance.outcome import Level, Outcome


@dataclass(slots=True)
class PluginReport:
    """One plugin's outcomes, in the order of its checks."""

    entry: Entry
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def level(self) -> Level | None:
        """The highest level that was shown; None if not even L0.

        A level is shown when one of its checks passed, and none of its own or of a lower one failed or lacked what it
        needs. A level without a check of its own is neither shown nor in the way of the next.
        """
        reached = None
        for level in Level:
            states = {outcome.status for outcome in self.outcomes if outcome.level == level}
            if states & {"failed", "unavailable"}:
                break
            if "passed" in states:
                reached = level
        return reached

    @property
    def failures(self) -> list[Outcome]:
        """The checks that failed."""
        return [outcome for outcome in self.outcomes if outcome.status == "failed"]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        entry = self.entry
        return {
            "group": entry.group,
            "name": entry.name,
            "distribution": entry.dist,
            "version": entry.version,
            "level": self.level.name if self.level is not None else None,
            "checks": [outcome.to_dict() for outcome in self.outcomes],
        }


@dataclass(slots=True)
class Report:
    """A run of the kit."""

    plugins: list[PluginReport] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not any(plugin.failures for plugin in self.plugins)

    def of(self, entry: Entry) -> PluginReport:
        """Return the report of a plugin, a new one the first time."""
        for plugin in self.plugins:
            if plugin.entry == entry:
                return plugin
        self.plugins.append(PluginReport(entry))
        return self.plugins[-1]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"format": 1, "versions": versions(), "plugins": [plugin.to_dict() for plugin in self.plugins]}

    def write(self, path: str | Path) -> None:
        """Write the report as JSON. Raises `ConfigError` CORE-T102 when the file cannot be written."""
        try:
            Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            reason = f"the conformance report cannot be written to {path}: {error.strerror or error}."
            raise ConfigError("CORE-T102", reason, hint="Give a path in a directory that exists.") from error

    def summary(self) -> list[str]:
        """Return one line per plugin: level, name, distribution, and how many checks passed or did not."""
        return [_line(plugin) for plugin in self.plugins]


def versions() -> dict[str, str]:
    """Return what the outcomes depend on besides the plugin."""
    found = {"core": __version__, "python": platform.python_version(), "machine": platform.machine()}
    for name in ("torch", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _line(plugin: PluginReport) -> str:
    counts: dict[str, int] = {}
    for outcome in plugin.outcomes:
        counts[outcome.status] = counts.get(outcome.status, 0) + 1
    level = plugin.level.name if plugin.level is not None else "--"
    tally = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    entry = plugin.entry
    return f"{level}  {entry.group}:{entry.name}  ({entry.owner})  {tally}"
