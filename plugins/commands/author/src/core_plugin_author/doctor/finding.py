"""Findings of the doctor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from core.api import InstalledPlugin

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, or should be known.

    Attributes:
        plugin: `kind:name`; empty for what concerns a distribution or the environment.
        dist, version: The distribution; empty for the environment.
        cause: What is wrong and why.
        remedy: What to do about it.
    """

    level: Level
    code: str
    cause: str
    remedy: str = ""
    plugin: str = ""
    dist: str = ""
    version: str = ""

    @staticmethod
    def of(plugin: InstalledPlugin, level: Level, code: str, cause: str, remedy: str = "") -> Finding:
        """Return a finding on a plugin."""
        return Finding(level, code, cause, remedy, plugin.title, plugin.dist, plugin.version)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "level": self.level,
            "code": self.code,
            "plugin": self.plugin,
            "distribution": self.dist,
            "version": self.version,
            "cause": self.cause,
            "remedy": self.remedy,
        }

    def __str__(self) -> str:
        owner = f"{self.dist} {self.version}".strip()
        where = f"{self.plugin} ({owner})" if self.plugin and owner else self.plugin or owner or "environment"
        return f"{self.level}: {self.code} {where}: {self.cause}.{f' {self.remedy}' if self.remedy else ''}"


def joined(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings in order, what a distribution's plugins have in common as one: `a module is missing`."""
    groups: dict[Finding, list[str]] = {}
    for finding in findings:
        groups.setdefault(replace(finding, plugin=""), []).append(finding.plugin)
    for common, plugins in groups.items():
        more = f" and {len(plugins) - 1} more" if len(plugins) > 1 else ""
        yield replace(common, plugin=f"{plugins[0]}{more}")
