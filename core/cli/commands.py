"""The commands of `core`: core's own and those of plugins, and the parser of the one that was typed."""

from __future__ import annotations

import argparse
import types
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from core import logs
from core.api.errors import ConfigError
from core.config.parser import CoreParser
from core.suggest import nearest

COMMANDS: Mapping[str, tuple[str, str]] = types.MappingProxyType(
    {
        "serve": ("core.cli.serve", "Serve a model over HTTP (OpenAI-compatible)."),
        "plugins": ("core.cli.plugins", "List, explain, check, make and install plugins."),
        "config": ("core.cli.config", "Show options, their values and where each comes from."),
        "completion": ("core.cli.completion", "Print a completion script for bash, zsh or fish."),
        "collect-env": ("core.cli.env", "Print what a bug report needs."),
    }
)
"""Core's own commands. Name -> module with `register(subparsers)`, and one line of help."""

BUNDLE_BEFORE = "plugins"
"""In front of which of them the commands of the default bundle are listed."""

HAVE_CASES = frozenset({"config", "plugins"})
"""Commands of core that a further word follows; plugins may bring cases of them (`core.cli.plugin_commands`)."""


def command_of(words: Sequence[str]) -> str | None:
    """Return the first word that is neither a flag nor the value of one; None if help of `core` is asked for before."""
    before = ["", *words]
    if words and words[0] in ("-h", "--help"):
        return None
    return next(
        (
            word
            for last, word in zip(before, words)
            if not word.startswith("-") and last not in ("--log-level", "--log-format")
        ),
        None,
    )


def parser_for(command: str | None, *, with_plugins: bool) -> CoreParser:
    """Return the parser of `core`, complete but for the commands other than `command`; they are named alone.

    Args:
        with_plugins: Whether plugins' commands are looked for.
    """
    parser = CoreParser(prog="core", description="An LLM inference and serving framework whose parts are plugins.")
    parser.add_argument("--version", action="store_true", help="Print the version.")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=CoreParser)
    bundled = _add_plugins(command, commands) if with_plugins and command not in COMMANDS else {}
    for name, (module, summary) in COMMANDS.items():
        if name == BUNDLE_BEFORE:
            for one, told in bundled.items():
                commands.add_parser(one, help=told, add_help=False)
        if name == command:
            import_module(module).register(commands)
            if with_plugins and name in HAVE_CASES:
                _add_cases(name, commands.choices[name])
        else:
            commands.add_parser(name, help=summary, add_help=False)
    add_common(parser)
    return parser


def _add_plugins(command: str | None, commands: Any) -> Mapping[str, str]:
    """Add the plugin's command that was typed; or list them for `core --help`, and return name -> line of the bundle's.

    Raises:
        ConfigError: CORE-C104, there is no such command.
    """
    from core.cli import plugin_commands

    found = plugin_commands.installed()
    if command in found:
        plugin_commands.register(command, commands)
        return {}
    if command is not None:
        known = [*COMMANDS, *found]
        hint = plugin_commands.lead(command) or nearest(command, known) or "See `core --help`."
        raise ConfigError("CORE-C104", f"unknown command {command!r}.", hint=hint)
    cased = plugin_commands.with_cases(HAVE_CASES)
    listed = {name: row.summary for name, row in plugin_commands.bundled().items() if name in found and not row.after}
    others = found.keys() - COMMANDS.keys() - listed.keys()
    for name in sorted(others):
        if not plugin_commands.is_case(name, cased):
            commands.add_parser(name, help=f"From {found[name].owner}.", add_help=False)
    return listed


def _add_cases(command: str, parser: CoreParser) -> None:
    from core.cli import plugin_commands

    plugin_commands.add_cases(command, parser)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the flags that every command takes, at every level, so that their place does not matter."""
    if isinstance(parser, CoreParser) and parser.waits:
        parser.fill_later(add_common)  # behind its own
        return
    group = parser.add_argument_group("common")
    for flag, keywords in (
        ("--debug", {"action": "store_true", "help": "Show the traceback of an error. [CORE_DEBUG]"}),
        ("--log-level", {"metavar": "LEVEL", "help": f"One of {', '.join(logs.LEVELS)}. [CORE_LOG_LEVEL]"}),
        ("--log-format", {"metavar": "FORMAT", "help": "text or json. [CORE_LOG_FORMAT]"}),
    ):
        if flag not in parser._option_string_actions:
            group.add_argument(flag, default=argparse.SUPPRESS, **keywords)  # type: ignore[arg-type]
    for child in _children(parser).values():
        add_common(child)


def _children(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    return {}


def parser_of(parser: argparse.ArgumentParser, command: str | None) -> argparse.ArgumentParser | None:
    """Return the parser of a command below `parser`; None if it has none of that name."""
    return _children(parser).get(command) if command else None
