"""`core plugins lock` and `verify`: write down a start's plugins, and hold an installation against it."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from core.cli.plugins.scope import option_flags
from core.plugins.catalog import Catalogue


def add(actions: Any) -> None:
    """Add both actions."""
    lock = actions.add_parser("lock", help="Choose as `serve` would, and write the plugins to a lock file.")
    lock.add_argument("file", metavar="FILE", help="File to write (JSON).")
    lock.fill_later(option_flags)  # the file is the positional argument; the model comes as --model
    lock.set_defaults(run=run_lock)
    verify = actions.add_parser(
        "verify",
        help="Hold what is installed against a lock file.",
        description="Exit status 1 with --strict if anything differs; a start verifies with --plugins-lock FILE.",
    )
    verify.add_argument("file", metavar="FILE", help="File that `core plugins lock` wrote.")
    verify.add_argument("--strict", action="store_true", help="A difference is an error.")
    verify.add_argument("--json", action="store_true", help="Print JSON.")
    verify.set_defaults(run=run_verify)


def run_lock(args: argparse.Namespace) -> int:
    """Resolve and write the lock file."""
    from core.boot import resolve
    from core.config.load import load_options
    from core.plugins.lock import lock_of, write_lock

    options = load_options(args).options
    # The file that is being written again must not be held against what it will say.
    select = options.select.model_copy(update={"plugins_lock": None})
    plan = resolve(options.model_copy(update={"select": select})).config.plan
    lock = lock_of(plan)
    write_lock(args.file, lock)
    print(f"{args.file}: {len(lock.plugins)} plugins of {len(lock.distributions)} distributions, {lock.digest[:12]}")
    return 0


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
