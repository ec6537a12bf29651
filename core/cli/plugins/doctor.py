"""`core plugins doctor`: import every plugin in a process of its own and say what is wrong with it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.api.installed import FILE_PREFIX
from core.cli.plugins.naming import named
from core.cli.plugins.scope import scope_flags, selection
from core.plugins.catalog import Catalogue, Entry
from core.plugins.doctor.finding import LEVELS, Finding, joined


def add(actions: Any) -> None:
    """Add the action."""
    parser = actions.add_parser(
        "doctor",
        help="Check installed plugins, each in a process of its own.",
        description="Exit status 1 if there is an error; warnings and notes leave it at 0.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="Plugin, kind:plugin or distribution; default: all.")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="X", help="Seconds for one plugin (default: 60)."
    )
    parser.add_argument(
        "--fresh", action="store_true", help="Examine everything; by default not what was sound and has not changed."
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.fill_later(scope_flags)
    parser.set_defaults(run=run_doctor)


def _chosen(catalogue: Catalogue, name: str | None) -> list[Entry]:
    """Return the plugins to examine; naming one that takes no part is an error that says why."""
    usable = catalogue.usable()
    if name is None:
        return usable
    found = named(catalogue, name, dists=True)
    if not set(found) & set(usable):
        raise catalogue.refusal(found[0], name)
    return [entry for entry in found if entry in usable]


def run_doctor(args: argparse.Namespace) -> int:
    """Print the findings as they come, or all of them as data, the gravest first."""
    from core.plugins.doctor.environment import examine_environment
    from core.plugins.doctor.host import examine_files
    from core.plugins.scope import limited

    select = selection(args)
    paths = [str(Path(text).expanduser().absolute()) for text in dict.fromkeys(select.plugin_file)]
    offered, findings = examine_files(paths, timeout=args.timeout)
    catalogue = limited(select, Catalogue.scan().including(offered))
    entries = _chosen(catalogue, args.name)
    keys = {(entry.group, entry.name) for entry in entries}
    rivals = [entry for group, name in keys for entry in catalogue.entries(group) if entry.name == name]
    findings += examine_environment(sorted(rivals), all_distributions=not args.name)
    told = _Told(as_lines=not args.json)
    told.add(findings)
    files = {f"{FILE_PREFIX}{Path(path).stem}": path for path in paths}
    before = _examine(entries, files, args, told)
    return told.end(len(entries), before)


def _examine(entries: Sequence[Entry], files: Mapping[str, str], args: argparse.Namespace, told: _Told) -> int:
    """Examine plugins and tell what is found; return for how many that was known before."""
    from core.cli.ui.progress import CountProgress
    from core.plugins.doctor.host import examine
    from core.plugins.doctor.remembered import Remembered, remembered_file

    before = 0
    plugins = {entry.dist for entry in Catalogue.scan().every()}
    remembered = Remembered(remembered_file(), plugins, fresh=args.fresh)
    try:
        with CountProgress("plugins", len(entries)) as progress:
            for result in examine(entries, files=files, timeout=args.timeout, remembered=remembered):
                told.add(result.findings)
                before += result.before
                progress.step(f"{result.entry.group.removeprefix('core.')}:{result.entry.name}")
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
