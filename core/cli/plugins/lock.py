"""`core plugins lock` and `verify`: write down a start's plugins, and hold an installation against it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from core.cli.plugins.scope import option_flags
from core.plugins.catalog import Catalogue
from core.plugins.kinds import kind_of

if TYPE_CHECKING:
    from core.plugins.lock import Lock


def add(actions: Any) -> None:
    """Add both actions."""
    lock = actions.add_parser(
        "lock",
        help="Choose as `serve` would for a model, and write the plugins to a lock file.",
        description="Choose as `serve` would for a model, print the choices, and write them to a lock file with the "
        "versions and the code's digests of every distribution.",
    )
    lock.add_argument("file", metavar="FILE", help="File to write (JSON).")
    lock.fill_later(partial(option_flags, positional_model=True))
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
    from core.config.load import load_options
    from core.plugins.lock import lock_of, write_lock
    from core.selection.resolver import resolve

    options = load_options(args).options
    # The file that is being written again must not be held against what it will say.
    select = options.select.model_copy(update={"plugins_lock": None})
    config = resolve(options.model_copy(update={"select": select})).config
    lock = lock_of(config.plan, options.model.model or "")
    write_lock(args.file, lock)
    print(f"{config.files.name} ({config.checkpoint.architecture}, {config.dtype}):")
    for line in _choices(lock):
        print(f"  {line}")
    print(f"{args.file}: {len(lock.plugins)} plugins of {len(lock.distributions)} distributions, {lock.digest[:12]}")
    return 0


def _choices(lock: Lock) -> Iterator[str]:
    """Yield a line for each kind: its label, and names with distributions."""
    groups = dict.fromkeys(plugin.group for plugin in lock.plugins)
    width = max((len(kind_of(group).label) for group in groups), default=0)
    for group in groups:
        names = [f"{plugin.name} ({plugin.dist} {plugin.version})" for plugin in lock.plugins if plugin.group == group]
        yield f"{kind_of(group).label:{width}}  {', '.join(names)}"


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
