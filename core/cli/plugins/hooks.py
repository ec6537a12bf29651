"""`core plugins hooks`: every hook, its parameters, and who implements it, in the order of the calls."""

from __future__ import annotations

import argparse
import json
from typing import Any

from core.cli.plugins.scope import scope_flags, visible
from core.plugins.kinds import HOOKS_GROUP


def add(actions: Any) -> None:
    """Add the action."""
    parser = actions.add_parser("hooks", help="Show every hook and who implements it (imports hook modules).")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.fill_later(scope_flags)
    parser.set_defaults(run=run_hooks)


def run_hooks(args: argparse.Namespace) -> int:
    """Print the hooks; modules that cannot be registered come last, with the reason."""
    from core.plugins.hooks import Hooks

    hooks = Hooks(visible(args).entries(HOOKS_GROUP))
    rows = hooks.listing()
    failed = [failure.error() for failure in hooks.failures]
    if args.json:
        print(json.dumps({"hooks": rows, "failed": [error.to_dict() for error in failed]}, indent=2))
        return 0
    for row in rows:
        print(f"{row['hook']}({', '.join(row['parameters'])})  {row['result']}: {row['summary']}")
        for number, one in enumerate(row["implementers"], 1):
            wraps = ", wraps the others" if one["wrapper"] else ""
            print(f"  {number}. {one['name']}  {one['distribution']} {one['version']}{wraps}")
    for error in failed:
        print(f"failed: {error}")
    return 0
