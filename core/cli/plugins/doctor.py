"""`core plugins doctor`: import every plugin in a process of its own and say what is wrong with it."""

from __future__ import annotations

import argparse
import json
from typing import Any

from core.cli.plugins.naming import named
from core.plugins.catalog import Catalogue


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
    parser.set_defaults(run=run_doctor)


def run_doctor(args: argparse.Namespace) -> int:
    """Print the findings, the gravest first."""
    from core.plugins.doctor import examine, examine_environment
    from core.plugins.doctor.finding import LEVELS

    catalogue = Catalogue.scan()
    every = [entry for group in catalogue.groups() for entry in catalogue.entries(group)]
    entries = named(catalogue, args.name, dists=True) if args.name else every
    findings = examine_environment(
        [entry for entry in every if (entry.group, entry.name) in {(one.group, one.name) for one in entries}],
        all_distributions=not args.name,
    )
    findings += examine(entries, timeout=args.timeout)
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
