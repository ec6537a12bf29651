"""`core show MODEL`: what a model on this machine is, without loading it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from core.api import CommandHost
from core_plugin_models.common import WHICH


class Show:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._host = host

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.description = (
            "Print what a model on this machine is: a hub id in the cache, a file or a directory. Nothing is "
            "fetched and no weights are read."
        )
        named = parser.add_argument("model", nargs="?", metavar="MODEL", help="Which one; none: the default model.")
        named.completer = self._complete  # type: ignore[attr-defined]
        parser.add_argument("--json", action="store_true", help="Print JSON.")
        self._host.options.add_some(parser, WHICH)

    def run(self, args: argparse.Namespace) -> int:
        """Print its facts and its files."""
        terminal = self._host.terminal
        facts = dict(self._host.models.describe(self._host.options.load(args), args.model))
        if args.json:
            print(json.dumps(facts, indent=2))
            return 0
        sizes = facts.pop("files")
        shown = {**facts, "size": terminal.size(facts["size"]), "parameters": _count(facts["parameters"])}
        rows = [(name, str(value)) for name, value in shown.items() if value is not None]
        print(terminal.table((), rows))
        print("files")
        print(terminal.table((), [(f"  {name}", terminal.size(size)) for name, size in sizes.items()], right=(1,)))
        return 0

    def _complete(self, prefix: str, **_: object) -> Sequence[str]:
        return self._host.models.complete(prefix)


def _count(number: int | None) -> str | None:
    if number is None:
        return None
    for size, letter in ((1e9, "B"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g} {letter} ({number})"
    return str(number)
