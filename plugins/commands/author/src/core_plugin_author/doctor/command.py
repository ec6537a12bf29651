"""`core plugins doctor`: import every plugin in a process of its own and say what is wrong with it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from core.api import FILE_PREFIX, CommandHost, InstalledPlugin, PluginScope
from core_plugin_author.doctor.finding import LEVELS, Finding, joined


class Doctor:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._host = host

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.description = "Exit status 1 if there is an error; warnings and notes leave it at 0."
        name = parser.add_argument(
            "name", nargs="?", metavar="NAME", help="Plugin, kind:plugin or distribution; default: all."
        )
        name.completer = self._host.plugins.complete  # type: ignore[attr-defined]
        parser.add_argument(
            "--timeout", type=float, default=60.0, metavar="X", help="Seconds for one plugin (default: 60)."
        )
        parser.add_argument(
            "--fresh",
            action="store_true",
            help="Examine everything; by default not what was sound and has not changed.",
        )
        parser.add_argument("--json", action="store_true", help="Print JSON.")
        self._host.plugins.add_flags(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Print the findings as they come, or all of them as data, the gravest first."""
        from core_plugin_author.doctor.environment import examine_environment
        from core_plugin_author.doctor.parent import examine_files

        installed = self._host.plugins.scope(args)
        offered, findings = examine_files(self._host, installed.files, timeout=args.timeout)
        scope = installed.including(offered)
        entries = scope.usable(args.name)
        keys = {(entry.group, entry.name) for entry in entries}
        rivals = [entry for entry in scope.usable() if (entry.group, entry.name) in keys]
        findings += examine_environment(self._host.plugins, scope, rivals, all_distributions=not args.name)
        told = _Told(as_lines=not args.json)
        told.add(findings)
        files = {f"{FILE_PREFIX}{Path(path).stem}": path for path in scope.files}
        before = self._examine(scope, entries, files, args, told)
        return told.end(len(entries), before)

    def _examine(
        self,
        scope: PluginScope,
        entries: Sequence[InstalledPlugin],
        files: Mapping[str, str],
        args: argparse.Namespace,
        told: _Told,
    ) -> int:
        """Examine plugins and tell what is found; return for how many that was known before."""
        from core_plugin_author.doctor.parent import examine
        from core_plugin_author.doctor.remembered import Remembered, remembered_file

        before = 0
        dists = {entry.dist for entry in scope.every()}
        remembered = Remembered(self._host.plugins, remembered_file(), dists, fresh=args.fresh)
        try:
            with self._host.terminal.progress("plugins", len(entries)) as progress:
                for result in examine(self._host, entries, files=files, timeout=args.timeout, remembered=remembered):
                    told.add(result.findings)
                    before += result.before
                    progress.step(result.entry.title)
        finally:
            remembered.write()  # also of an examination that Ctrl-C ended
        return before


class _Told:
    """The findings: printed as lines, or at the end as data. Notes come last, those that plugins share as one line."""

    def __init__(self, *, as_lines: bool) -> None:
        self._as_lines = as_lines
        self._findings: list[Finding] = []

    def add(self, findings: Iterable[Finding]) -> None:
        """Take findings that belong together; the gravest is told first."""
        fresh = sorted(findings, key=_gravity)
        self._findings += fresh
        urgent = [str(finding) for finding in fresh if finding.level != "note"]
        if self._as_lines and urgent:
            print("\n".join(urgent), flush=True)

    def end(self, plugins: int, before: int) -> int:
        """Print how many there are, and return the exit status."""
        self._findings.sort(key=_gravity)
        counts = {level: sum(finding.level == level for finding in self._findings) for level in LEVELS}
        if self._as_lines:
            for note in joined(finding for finding in self._findings if finding.level == "note"):
                print(note)
            told = ", ".join(f"{count} {level}{'s' if count != 1 else ''}" for level, count in counts.items())
            again = f" ({before} as they were found before; --fresh examines them again)" if before else ""
            print(f"{plugins} plugins: {told}{again}")
        else:
            rows = [finding.to_dict() for finding in self._findings]
            print(json.dumps({"plugins": plugins, "before": before, **counts, "findings": rows}, indent=2))
        return 1 if counts["error"] else 0


def _gravity(finding: Finding) -> int:
    return LEVELS.index(finding.level)
