"""`core plugins doctor`: import every plugin in a process of its own and say what is wrong with it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from core.cli.plugins.naming import named
from core.cli.plugins.scope import scope_flags, selection
from core.plugins.catalog import FILE_PREFIX, Catalogue, Entry


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
    """Print the findings, the gravest first."""
    from core.plugins.doctor.environment import examine_environment
    from core.plugins.doctor.finding import LEVELS
    from core.plugins.doctor.host import examine, examine_files
    from core.plugins.scope import limited

    select = selection(args)
    paths = [str(Path(text).expanduser().absolute()) for text in dict.fromkeys(select.plugin_file)]
    offered, findings = examine_files(paths, timeout=args.timeout)
    catalogue = limited(select, Catalogue.scan().including(offered))
    entries = _chosen(catalogue, args.name)
    keys = {(entry.group, entry.name) for entry in entries}
    rivals = [entry for group, name in keys for entry in catalogue.entries(group) if entry.name == name]
    findings += examine_environment(sorted(rivals), all_distributions=not args.name)
    findings += examine(
        entries, files={f"{FILE_PREFIX}{Path(path).stem}": path for path in paths}, timeout=args.timeout
    )
    findings.sort(key=lambda finding: LEVELS.index(finding.level))
    counts = {level: sum(finding.level == level for finding in findings) for level in LEVELS}
    if args.json:
        rows = [finding.to_dict() for finding in findings]
        print(json.dumps({"plugins": len(entries), **counts, "findings": rows}, indent=2))
    else:
        for finding in findings:
            print(finding)
        told = ", ".join(f"{count} {level}{'s' if count != 1 else ''}" for level, count in counts.items())
        print(f"{len(entries)} plugins: {told}")
    return 1 if counts["error"] else 0
