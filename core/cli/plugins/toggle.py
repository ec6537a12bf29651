"""`core plugins enable` and `disable`: edit the configuration file. No plugin code runs, so a broken one can be put
away."""

from __future__ import annotations

import argparse
import os
from typing import Any

from core.api.errors import PluginError
from core.plugins.catalog import Catalogue
from core.suggest import nearest

DEFAULT_FILE = "core.toml"


def add(actions: Any) -> None:
    """Add both actions."""
    for name, run, text in (
        ("enable", run_enable, "Let a plugin that was disabled take part again."),
        ("disable", run_disable, "Keep a plugin from taking part."),
    ):
        parser = actions.add_parser(name, help=text, description=f"{text} Edits $CORE_CONFIG, or ./{DEFAULT_FILE}.")
        parser.add_argument("name", metavar="NAME", help="name, kind:name, name@distribution, or distribution.")
        parser.set_defaults(run=run)


def run_disable(args: argparse.Namespace) -> int:
    """Add the name to `select.disable_plugin`."""
    from core.plugins.toggle import DisabledList

    catalogue = Catalogue.scan([args.name])
    if catalogue.useless_disables():
        names = sorted({text for entry in catalogue.usable() for text in (entry.name, entry.dist)})
        hint = nearest(args.name, names) or "See `core plugins list`."
        raise PluginError("CORE-P101", f"nothing named '{args.name}' is installed.", hint=hint)
    path = _file()
    disabled = DisabledList(path)
    if args.name in disabled.names:
        print(f"{path}: {args.name} is disabled already")
        return 0
    disabled.write([*disabled.names, args.name])
    gone = ", ".join(f"{entry.group.removeprefix('core.')}:{entry.name}" for entry in catalogue.disabled_entries())
    print(f"{path}: {args.name} is disabled ({gone})")
    _remind(path)
    return 0


def run_enable(args: argparse.Namespace) -> int:
    """Take the name out of `select.disable_plugin`."""
    from core.plugins.toggle import DisabledList

    path = _file()
    disabled = DisabledList(path)
    if args.name in disabled.names:
        disabled.write([name for name in disabled.names if name != args.name])
        print(f"{path}: {args.name} is enabled")
        _remind(path)
        return 0
    mine = set(Catalogue.scan([args.name]).disabled_entries())
    others = [name for name in disabled.names if mine & set(Catalogue.scan([name]).disabled_entries())]
    if others:
        text = f"{path} disables '{args.name}' under another name: {', '.join(others)}."
        raise PluginError("CORE-P101", text, hint=f"core plugins enable {others[0]}")
    print(f"{path}: {args.name} is not disabled")
    return 0


def _file() -> str:
    return os.environ.get("CORE_CONFIG") or DEFAULT_FILE


def _remind(path: str) -> None:
    """A file in the working directory is read only when it is named: it could come from anybody."""
    if not os.environ.get("CORE_CONFIG"):
        print(f"It takes effect with --config {path}, or for every command with")
        print(f"  export CORE_CONFIG={os.path.abspath(path)}")
