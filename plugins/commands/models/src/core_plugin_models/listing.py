"""`core ls`: the models that can be served without fetching anything."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from core.api import CommandHost, KeptModel, Terminal
from core_plugin_models.common import CACHE, tell

HEADER = ("model", "size", "used", "revision", "source")
_SHORT = 12
"""Characters of a commit that are shown."""


class Ls:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._host = host

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags."""
        parser.description = (
            "List the models that model sources have on this machine: in the hub's cache, and those that "
            "distributions bring. Directories of your own are not listed. Packed weights that a weight store keeps are "
            "listed as MODEL:packed."
        )
        parser.add_argument("--json", action="store_true", help="Print JSON.")
        self._host.options.add_some(parser, CACHE, of_plugins=True)  # they say where weight stores keep things

    def run(self, args: argparse.Namespace) -> int:
        """Print one line for each model."""
        terminal = self._host.terminal
        models = sorted(self._host.models.kept(self._host.options.load(args), tell), key=_order)
        if args.json:
            print(json.dumps([_plain(kept) for kept in models], indent=2))
            return 0
        rows = [_row(terminal, kept) for kept in models]
        shown = terminal.table(HEADER, rows, right=(1,), optional=(3, 4))
        print(shown if models else "no model is on this machine")
        return 0


def _order(kept: KeptModel) -> tuple[str, float]:
    return kept.model.reference, -(kept.model.used or 0)


def _plain(kept: KeptModel) -> dict[str, Any]:
    return {**kept.model.model_dump(), "source": kept.source, "removable": kept.removable}


def _row(terminal: Terminal, kept: KeptModel) -> tuple[str, ...]:
    model = kept.model
    used = "" if model.used is None else f"{terminal.duration(time.time() - model.used)} ago"
    owner = kept.source if kept.removable else f"{kept.source} (installed)"
    return model.reference, terminal.size(model.num_bytes), used, (model.revision or "")[:_SHORT], owner
