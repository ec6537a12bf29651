"""Commands of plugins: `core NAME ...` for an entry point of `core.commands`. Only the one asked for is imported.

One whose name is `COMMAND-CASE` for a command of core that has cases is one of them: `bench-disk` is `core bench disk`.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Collection
from functools import partial
from typing import Any

from core.api.errors import CoreError, PluginError, RequestError
from core.plugins.catalog import Catalogue, Entry
from core.plugins.kinds import COMMAND


def installed() -> dict[str, Entry]:
    """Return the commands that plugins bring, by name; nothing is imported."""
    return {entry.name: entry for entry in Catalogue.scan().entries(COMMAND.group)}


def is_case(name: str, commands: Collection[str]) -> bool:
    """Say whether a plugin's command is a case of one of core's `commands`."""
    return any(name.startswith(f"{command}-") for command in commands)


def add_cases(command: str, parser: argparse.ArgumentParser) -> None:
    """Add plugins' cases to one of core's commands, if it has cases. A case is imported when it is used."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, entry in sorted(installed().items()):
                case = name.removeprefix(f"{command}-")
                if case != name and case not in action.choices:
                    child = action.add_parser(case, help=f"From {entry.owner}.")
                    child.fill_later(partial(fill, name))


def register(name: str, subparsers: Any) -> None:
    """Add a plugin's command. Raises `PluginError` as `fill` does."""
    fill(name, subparsers.add_parser(name))


def fill(name: str, parser: argparse.ArgumentParser) -> None:
    """Give a parser the arguments of a plugin's command.

    Raises:
        PluginError: CORE-P102, two distributions provide it; why it cannot be loaded; CORE-P108, it raised.
    """
    from core.config.load import load_options
    from core.plugins.drivers import guarded, instantiate, load_descriptors
    from core.plugins.options import checked_options, given_options

    entry = Catalogue.scan().find(COMMAND.group, name)
    candidates, failures = load_descriptors([entry])
    for failure in failures:
        raise failure.error(f"`core {name}`")
    descriptor = candidates[0].descriptor
    given = load_options(Namespace()).options.runtime.plugin_options if descriptor.options else {}
    command = instantiate(candidates[0], checked_options(candidates[0], given_options(entry, given)))
    parser.description = descriptor.summary
    guarded(entry, "register()", command.register, parser)

    def run(args: Any) -> int:
        try:
            return int(command.run(args) or 0)
        except (CoreError, RequestError, KeyboardInterrupt, BrokenPipeError):
            raise
        except Exception as error:
            text = f"command '{name}' ({entry.owner}): run() raised {type(error).__name__}: {error}."
            raise PluginError("CORE-P108", text, hint="--debug shows the traceback.") from error

    parser.set_defaults(run=run)
