"""The parsers of all commands as one tree, for the generated pages and for completion."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from core.cli.plugged import bundled, fill
from core.config.parser import CoreParser
from core.plugins.catalog import Catalogue
from core.plugins.kinds import COMMAND


def whole_parser(catalogue: Catalogue | None = None) -> CoreParser:
    """Return the parser of `core` with core's own commands and those of its bundle in place, their flags included.

    Args:
        catalogue: Where those of the bundle are; default: what is installed.
    """
    from core.cli.main import BUNDLE_BEFORE, COMMANDS

    parser = CoreParser(prog="core")
    subparsers = parser.add_subparsers(parser_class=CoreParser)
    for name, (module, _) in COMMANDS.items():
        if name == BUNDLE_BEFORE:
            _add_bundle(Catalogue.scan() if catalogue is None else catalogue, subparsers)
        import_module(module).register(subparsers)
    for _ in commands(parser):
        pass
    return parser


def _add_bundle(catalogue: Catalogue, subparsers: Any) -> None:
    found = {entry.name: entry for entry in catalogue.entries(COMMAND.group)}
    for name, row in bundled().items():
        if name in found:
            fill(found[name], subparsers.add_parser(name, help=row.summary))


def commands(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield every parser below `parser` and the words that lead to it, with flags in place that wait for their use."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                if isinstance(child, CoreParser):
                    child.fill()
                words = f"{path} {name}".strip()
                yield words, child
                yield from commands(child, words)
