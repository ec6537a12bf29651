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
from core.plugins.entry import Entry
from core_testing.conformance.outcome import Level, Outcome


@dataclass(frozen=True, slots=True)
class NotRun:
    """Checks of one level that did not run for one reason."""

    level: Level
    checks: tuple[str, ...]
    because: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"level": self.level.name, "checks": list(self.checks), "because": self.because}

    def __str__(self) -> str:
        what = self.checks[0] if len(self.checks) == 1 else f"{len(self.checks)} checks"
        return f"not run, because {self.because}: {self.level.name}, {what}"


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

    @property
    def not_run(self) -> list[NotRun]:
        """Checks that could not be run here, and why; the level stays below theirs."""
        groups: dict[tuple[Level, str], list[str]] = {}
        for outcome in self.outcomes:
            if outcome.status == "unavailable":
                groups.setdefault((outcome.level, outcome.message), []).append(outcome.check)
        return [NotRun(level, tuple(checks), because) for (level, because), checks in groups.items()]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        entry = self.entry
        return {
            "group": entry.group,
            "name": entry.name,
            "distribution": entry.dist,
            "version": entry.version,
            "level": self.level.name if self.level is not None else None,
            "not_run": [one.to_dict() for one in self.not_run],
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
        plugins = [plugin.to_dict() for plugin in self.plugins]
        return {"format": 1, "versions": versions(), "seconds": self.seconds(), "plugins": plugins}

    def seconds(self) -> dict[str, float]:
        """Return how long the checks of each area took, the longest first."""
        spent: dict[str, float] = {}
        for plugin in self.plugins:
            for outcome in plugin.outcomes:
                spent[outcome.area] = spent.get(outcome.area, 0.0) + outcome.seconds
        return {area: round(spent[area], 3) for area in sorted(spent, key=lambda area: -spent[area])}

    def write(self, path: str | Path) -> None:
        """Write the report as JSON. Raises `ConfigError` CORE-T102 when the file cannot be written."""
        try:
            Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            reason = f"the conformance report cannot be written to {path}: {error.strerror or error}."
            raise ConfigError("CORE-T102", reason, hint="Give a path in a directory that exists.") from error

    def summary(self) -> list[str]:
        """Return one line per plugin: level, name, distribution, and how many checks passed or did not.

        Under it stands what was not run, and why.
        """
        return [line for plugin in self.plugins for line in _lines(plugin)]


def versions() -> dict[str, str]:
    """Return what the outcomes depend on besides the plugin."""
    found = {"core": __version__, "python": platform.python_version(), "machine": platform.machine()}
    for name in ("torch", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _lines(plugin: PluginReport) -> list[str]:
    counts: dict[str, int] = {}
    for outcome in plugin.outcomes:
        counts[outcome.status] = counts.get(outcome.status, 0) + 1
    level = plugin.level.name if plugin.level is not None else "--"
    tally = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    entry = plugin.entry
    head = f"{level}  {entry.group}:{entry.name}  ({entry.owner})  {tally}"
    return [head, *(f"    {one}" for one in plugin.not_run)]
