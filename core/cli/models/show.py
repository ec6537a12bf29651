"""`core show MODEL`: what a model on this machine is, without loading it."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

from core.cli.models.common import WHICH, add_flags, opened
from core.cli.ui.tables import table


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "show",
        help="Describe a model that is on this machine.",
        description="Print what a model on this machine is: a hub id in the cache, a file or a directory. Nothing is "
        "fetched and no weights are read.",
    )
    parser.add_argument("model", nargs="?", metavar="MODEL", help="Which one; none: the default model.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    add_flags(parser, WHICH)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print its facts and its files."""
    from core.cli.models.facts import facts_of
    from core.plugins.checkpoints import find_files
    from core.plugins.stores import access_of

    options, selector = opened(args)
    access = replace(access_of(options.hub), offline=True)
    select = options.select
    source, files = find_files(selector, select.model_source, args.model, options.model.revision, access)
    facts = facts_of(selector, select, source, files)
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    from core.config.sizes import format_size

    sizes = facts.pop("files")
    shown = {**facts, "size": format_size(facts["size"]), "parameters": _count(facts["parameters"])}
    rows = [(name, str(value)) for name, value in shown.items() if value is not None]
    print(table((), rows))
    print("files")
    print(table((), [(f"  {name}", format_size(size)) for name, size in sizes.items()], right=(1,)))
    return 0


def _count(number: int | None) -> str | None:
    if number is None:
        return None
    for size, letter in ((1e9, "B"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g} {letter} ({number})"
    return str(number)
