"""`core ls`: the models that can be served without fetching anything."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from core.cli.models.common import CACHE, add_flags, opened, tell
from core.cli.ui.tables import table
from core.config.flags import add_plugin_flag

if TYPE_CHECKING:
    from core.plugins.stores import Kept

HEADER = ("model", "size", "used", "revision", "source")
_SHORT = 12
"""Characters of a commit that are shown."""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "ls",
        help="List the models that are on this machine.",
        description="List the models that model sources have on this machine: in the hub's cache, and those that "
        "distributions bring. Directories of your own are not listed. Packed weights that a weight store keeps are "
        "listed as MODEL:packed.",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    add_plugin_flag(parser)  # says where weight stores keep things
    add_flags(parser, CACHE)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print one line for each model."""
    from core.plugins.stores import access_of, kept_models, kept_weights

    options, selector = opened(args)
    found = [*kept_models(selector, access_of(options.hub), tell), *kept_weights(selector, tell)]
    models = sorted(found, key=_order)
    if args.json:
        print(json.dumps([_plain(kept) for kept in models], indent=2))
        return 0
    rows = [_row(kept) for kept in models]
    print(table(HEADER, rows, right=(1,), optional=(3, 4)) if models else "no model is on this machine")
    return 0


def _order(kept: Kept) -> tuple[str, float]:
    return kept.model.reference, -(kept.model.used or 0)


def _plain(kept: Kept) -> dict[str, Any]:
    return {**kept.model.model_dump(), "source": kept.entry.name, "removable": kept.removable}


def _row(kept: Kept) -> tuple[str, ...]:
    from core.cli.host.terminal import Screen
    from core.config.sizes import format_size

    model = kept.model
    used = "" if model.used is None else f"{Screen().duration(time.time() - model.used)} ago"
    owner = kept.entry.name if kept.removable else f"{kept.entry.name} (installed)"
    return model.reference, format_size(model.num_bytes), used, (model.revision or "")[:_SHORT], owner
