"""`core plugins ...`: one module per action. Nothing here is imported from a plugin before an action needs it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from core.cli.plugins import api, conformance, doctor, hooks, info, install, listing, lock, new, parse, toggle, why
from core.cli.plugins.listing import run_list
from core.config.parser import CoreParser
from core.plugins.catalog import Catalogue

__all__ = ["Catalogue", "register", "run_list"]

ACTIONS = (listing, info, why, doctor, new, conformance, install, toggle, lock, parse, api, hooks)


_CHOOSING = (why.run_why, lock.run_lock)
"""Actions that choose as `serve` does, and take all of its flags."""

_SEEING = (listing.run_list, info.run_info, parse.run_parse, doctor.run_doctor, hooks.run_hooks)
"""Actions that take those flags of `serve` that say which plugins there are."""


class _OptionParser(CoreParser):
    """Adds a flag for every option when it is used: the other actions start faster without."""

    filled = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse with the option flags in place."""
        self.fill()
        return super().parse_known_args(args, namespace)

    def fill(self) -> None:
        """Put the option flags in place, in the actions that have them."""
        run = self.get_default("run")
        if self.filled or run not in (*_CHOOSING, *_SEEING):
            return
        from core.config.flags import add_option_flags, add_scope_flags

        self.filled = True
        if run in _SEEING:
            add_scope_flags(self)
        else:
            # The lock file is the positional argument of `lock`; its model comes as --model.
            add_option_flags(self, positional_model=run is why.run_why)


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("plugins", help="List, explain, check, make and install plugins.")
    actions = parser.add_subparsers(metavar="ACTION", parser_class=_OptionParser)
    for module in ACTIONS:
        module.add(actions)
