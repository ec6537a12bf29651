"""`core plugins ...`: one module per action. Nothing here is imported from a plugin before an action needs it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from core.cli.plugins import api, conformance, doctor, hooks, info, install, listing, lock, new, toggle, why
from core.cli.plugins.listing import run_list
from core.config.parser import CoreParser
from core.plugins.catalog import Catalogue

__all__ = ["Catalogue", "register", "run_list"]

ACTIONS = (listing, info, why, doctor, new, conformance, install, toggle, lock, api, hooks)


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
        if not self.filled and self.get_default("run") in (why.run_why, lock.run_lock):
            from core.config.flags import add_option_flags

            self.filled = True
            # The lock file is the positional argument of `lock`; its model comes as --model.
            add_option_flags(self, positional_model=self.get_default("run") is why.run_why)


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("plugins", help="List, explain, check, make and install plugins.")
    actions = parser.add_subparsers(metavar="ACTION", parser_class=_OptionParser)
    for module in ACTIONS:
        module.add(actions)
