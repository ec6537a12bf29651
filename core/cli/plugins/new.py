"""`core plugins new`: a complete distribution to start from."""

from __future__ import annotations

import argparse
from typing import Any

from core.cli.plugins.naming import group_of
from core.plugins.kinds import HOOKS_GROUP


def add(actions: Any) -> None:
    """Add the action."""
    parser = actions.add_parser(
        "new",
        help="Write a plugin that works, to be changed into yours.",
        description="Writes the folder core-plugin-NAME with entry point, manifest, implementation, tests and README.",
    )
    parser.add_argument("kind", metavar="KIND", help="Kind of plugin (`core plugins api` lists them), or hooks.")
    parser.add_argument("name", metavar="NAME", help="Name of the plugin: small letters, digits, - and _.")
    parser.add_argument("--dir", default=".", metavar="D", help="Where to put the folder (default: here).")
    parser.set_defaults(run=run_new)


def run_new(args: argparse.Namespace) -> int:
    """Write the project and say what to do next."""
    from core.plugins.scaffold import scaffold

    group = HOOKS_GROUP if args.kind in ("hooks", "hook") else group_of(args.kind)
    made = scaffold(group, args.name, args.dir)
    print(f"{made.folder}")
    for path in made.written:
        print(f"  {path}")
    print("Next:")
    print(f"  core plugins install {made.folder}")
    print(f"  core plugins doctor {args.name}")
    print(f"  python -m pytest {made.folder}")
    print(f"  core plugins test {args.name}")
    print(f"  {made.use}")
    return 0
