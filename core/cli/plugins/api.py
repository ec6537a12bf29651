"""`core plugins api`: the kinds of plugin and the API integers that this core accepts."""

from __future__ import annotations

import argparse
import json
from typing import Any

from core.api.kinds import Kind
from core.plugins.kinds import every_kind
from core.terminal.tables import table

HEADER = ("kind", "group", "api", "accepted", "tier", "descriptor", "option")


def add(actions: Any) -> None:
    """Add the action."""
    parser = actions.add_parser("api", help="Show the kinds of plugin and their API integers.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run_api)


def run_api(args: argparse.Namespace) -> int:
    """Print one row for each kind."""
    rows = [_row(kind) for kind in every_kind().values()]
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    print(table(HEADER, [tuple(_shown(row[key]) for key in HEADER) for row in rows], optional=(5, 1, 3)))
    return 0


def _row(kind: Kind) -> dict[str, Any]:
    return {
        "kind": kind.label,
        "group": kind.group,
        "api": kind.api,
        "accepted": [kind.first_api, kind.api],
        "tier": kind.tier,
        "descriptor": kind.descriptor.partition(":")[2] or "module",
        "option": kind.flag,
    }


def _shown(value: object) -> str:
    if isinstance(value, list):
        return "-".join(map(str, dict.fromkeys(value)))
    return str(value) or "-"
