"""`core plugins ...`: one module per action; further ones are cases that plugins bring (`core.cli.plugin_commands`).

Nothing here is imported from a plugin before an action needs it.
"""

from __future__ import annotations

from typing import Any

from core.cli.plugins import api, hooks, info, install, listing, parse, toggle, verify, why
from core.config.parser import CoreParser

ACTIONS = (listing, info, why, install, toggle, verify, parse, api, hooks)


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "plugins",
        help="List, explain, check, make and install plugins.",
        description="Alone: `core plugins list`.",
    )
    parser.set_defaults(run=listing.run_list, kind=None, json=False)
    actions = parser.add_subparsers(metavar="ACTION", parser_class=CoreParser)
    for module in ACTIONS:
        module.add(actions)
