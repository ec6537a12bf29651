"""The parsers of all commands as one tree, for the generated pages and for completion."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from core.cli.commands import BUNDLE_BEFORE, COMMANDS, HAVE_CASES
from core.cli.plugin_commands import add_cases, bundled, fill
from core.config.parser import CoreParser
from core.plugins.catalog import Catalogue
from core.plugins.entry import Entry
from core.plugins.kinds import COMMAND


def whole_parser(catalogue: Catalogue | None = None) -> CoreParser:
    """Return the parser of `core` with core's own commands and those of its bundle in place, their flags included.

    Args:
        catalogue: Where those of the bundle are; default: what is installed.
    """
    parser = CoreParser(prog="core")
    subparsers = parser.add_subparsers(parser_class=CoreParser)
    scanned = Catalogue.scan() if catalogue is None else catalogue
    found = {entry.name: entry for entry in scanned.entries(COMMAND.group) if entry.name in bundled()}
    for name, (module, _) in COMMANDS.items():
        if name == BUNDLE_BEFORE:
            _add_bundle(found, subparsers)
        import_module(module).register(subparsers)
        if name in HAVE_CASES:
            add_cases(name, subparsers.choices[name], found)
    for _ in commands(parser):
        pass
    return parser


def _add_bundle(found: Mapping[str, Entry], subparsers: Any) -> None:
    for name, row in bundled().items():
        if name in found and not row.after:
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
