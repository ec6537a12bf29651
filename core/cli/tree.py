"""The parsers of all commands as one tree, for the generated pages and for completion."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module

from core.config.parser import CoreParser


def whole_parser() -> CoreParser:
    """Return the parser of `core` with all of core's own commands in place, the flags of every one included."""
    from core.cli.main import COMMANDS

    parser = CoreParser(prog="core")
    subparsers = parser.add_subparsers(parser_class=CoreParser)
    for module, _ in COMMANDS.values():
        import_module(module).register(subparsers)
    for _ in commands(parser):
        pass
    return parser


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
