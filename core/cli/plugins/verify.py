"""`core plugins verify`: hold what is installed against a lock file."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from core.plugins.catalog import Catalogue


def add(actions: Any) -> None:
    """Add the action."""
    parser = actions.add_parser(
        "verify",
        help="Hold what is installed against a lock file.",
        description="Exit status 1 with --strict if anything differs; a start verifies with --plugins-lock FILE.",
    )
    parser.add_argument("file", metavar="FILE", help="File that `core plugins lock` wrote.")
    parser.add_argument("--strict", action="store_true", help="A difference is an error.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run_verify)


def run_verify(args: argparse.Namespace) -> int:
    """Print every difference."""
    from core.plugins.lock import installed_differences, read_lock

    found = installed_differences(read_lock(args.file), Catalogue.scan())
    level = "error" if args.strict else "warning"
    if args.json:
        print(json.dumps({"file": args.file, "level": level, "differences": found}, indent=2))
    else:
        for text in found:
            print(f"{level}: CORE-P310 {text}", file=sys.stderr)
        print(f"{args.file}: {len(found)} differences" if found else f"{args.file}: as locked")
    return 1 if found and args.strict else 0
