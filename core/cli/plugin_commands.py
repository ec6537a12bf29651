"""Commands of plugins: `core NAME ...` for an entry point of `core.commands`. Only the one asked for is imported.

One whose name is `COMMAND-CASE` for a command that has cases is one of them: `bench-disk` is `core bench disk`.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from core.api.cli import UsesHost
from core.api.commands import Command
from core.api.errors import CoreError, PluginError, RequestError
from core.config.parser import CoreParser
from core.plugins.catalog import Catalogue
from core.plugins.drivers import Candidate
from core.plugins.entry import Entry, duplicate
from core.plugins.kinds import COMMAND


class Bundled(NamedTuple):
    """How a command of the default bundle is listed; see `commands.toml`."""

    summary: str
    cases: bool = False
    after: str = ""


def bundled() -> Mapping[str, Bundled]:
    """Return name -> how it is listed, in order, of the bundle's commands, installed or not."""
    import tomllib  # not at the top: only lists of commands need it
    from importlib.resources import files

    text = (files("core.cli") / "commands.toml").read_text(encoding="utf-8")
    return {name: Bundled(**row) for name, row in tomllib.loads(text).items()}


def installed() -> dict[str, Entry]:
    """Return the commands that plugins bring, by name; nothing is imported."""
    return {entry.name: entry for entry in Catalogue.scan().entries(COMMAND.group)}


def is_case(name: str, commands: Collection[str]) -> bool:
    """Say whether a plugin's command is a case of one of `commands`."""
    return any(name.startswith(f"{command}-") for command in commands)


def with_cases(commands: Iterable[str]) -> set[str]:
    """Return these commands and those of the bundle that have cases."""
    return {*commands, *(name for name, row in bundled().items() if row.cases)}


def lead(name: str, typed: str = "") -> str:
    """Return what to install for a command that is not here; an empty text if nobody knows.

    Args:
        typed: How it is typed, where that is not its name.
    """
    from core.plugins.known import Table

    return Catalogue.scan().advice(Table.read().named(COMMAND.group, name), typed or name)


def cases_of(parser: argparse.ArgumentParser) -> Any:
    """Return what adds cases to a command; None for a command without."""
    return next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)


def add_cases(command: str, parser: argparse.ArgumentParser, found: Mapping[str, Entry] | None = None) -> None:
    """Add plugins' cases to a command, if it has cases: the bundle's at their places. One is imported when it is used.

    Args:
        found: Plugins' commands by name; default: those that are installed.
    """
    cases = cases_of(parser)
    if cases is None:
        return
    listed = bundled()
    for name, entry in sorted((installed() if found is None else found).items()):
        case = name.removeprefix(f"{command}-")
        if case != name and case not in cases.choices:
            row = listed.get(name)
            child = cases.add_parser(case, help=row.summary if row else f"From {entry.owner}.")
            child.waits = True
            child.fill_later(partial(_fill_case, entry))
    _put_in_order(cases, {name.removeprefix(f"{command}-"): row.after for name, row in listed.items()})
    if isinstance(parser, CoreParser):
        parser.lead = lambda case: lead(f"{command}-{case}", f"{command} {case}")


def _fill_case(entry: Entry, parser: argparse.ArgumentParser) -> None:
    """Give a parser the arguments of a case. Raises `PluginError`: CORE-P102, two provide it; or as `fill`."""
    rivals = [one for one in Catalogue.scan().entries(COMMAND.group) if one.name == entry.name]
    if len(rivals) > 1:
        raise duplicate(rivals)
    fill(entry, parser)


def _put_in_order(cases: Any, after: Mapping[str, str]) -> None:
    """Move cases behind those that they are to follow, in lists and messages."""
    order = list(cases.choices)
    for case, before in after.items():
        if case in order and before in order:
            order.remove(case)
            order.insert(order.index(before) + 1, case)
    parsers = dict(cases.choices)
    cases.choices.clear()
    cases.choices.update((name, parsers[name]) for name in order)
    cases._choices_actions.sort(key=lambda one: order.index(one.dest))


def register(name: str, subparsers: Any) -> None:
    """Add a plugin's command and its cases. Raises `PluginError`: CORE-P102, two provide it; or as `fill`."""
    parser = subparsers.add_parser(name)
    fill(Catalogue.scan().find(COMMAND.group, name), parser)
    add_cases(name, parser)


def fill(entry: Entry, parser: argparse.ArgumentParser) -> None:
    """Give a parser the arguments of a plugin's command.

    Raises:
        PluginError: Why it cannot be loaded; CORE-P108, it raised.
    """
    from core.plugins.drivers import load_descriptors

    candidates, failures = load_descriptors([entry])
    for failure in failures:
        raise failure.error(f"`core {entry.name}`")
    put(candidates[0], _options(candidates[0]), parser)


def _options(candidate: Candidate) -> Mapping[str, Any]:
    """Return the options of a command; without any, nothing that reads options is imported. Raises `ConfigError`."""
    if candidate.descriptor.options is None:
        return {}
    from core.config.load import load_options
    from core.plugins.options import checked_options, given_options

    given = load_options(Namespace()).options.runtime.plugin_options
    return checked_options(candidate, given_options(candidate.entry, given))


def put(candidate: Candidate, options: Mapping[str, Any], parser: argparse.ArgumentParser) -> None:
    """Make a command and have it add its arguments to a parser. Raises `PluginError`."""
    from core.plugins.drivers import guarded, instantiate

    entry = candidate.entry
    command: Command = instantiate(candidate, options)
    parser.description = candidate.descriptor.summary
    bind(entry, command)
    guarded(entry, "register()", command.register, parser)

    def run(args: Any) -> int:
        try:
            return int(command.run(args) or 0)
        except (CoreError, RequestError, KeyboardInterrupt, BrokenPipeError):
            raise
        except Exception as error:
            text = f"command '{entry.name}' ({entry.owner}): run() raised {type(error).__name__}: {error}."
            raise PluginError("CORE-P108", text, hint="--debug shows the traceback.") from error

    parser.set_defaults(run=run)


def bind(entry: Entry, command: Command) -> None:
    """Lend a command what it uses of core's, if it does. Raises `PluginError` CORE-P108."""
    from core.cli.host import Host
    from core.plugins.drivers import guarded

    if isinstance(command, UsesHost):
        guarded(entry, "bind()", command.bind, Host())
