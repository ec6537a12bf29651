"""`core completion bash | zsh | fish`, and the answer to a shell that completes a command line (argcomplete).

The script registers `core` with the shell and holds nothing else. At each Tab the shell runs `core` with `_ARGCOMPLETE`
in the environment and the line typed so far, and `answer` says what could follow: so it is always what is installed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import Any

from core import logs
from core.cli.commands import command_of, parser_for
from core.cli.completers import Completer, listed
from core.cli.tree import commands
from core.plugins.kinds import every_kind, kind_chosen_by

SHELLS = ("bash", "zsh", "fish")
_COMPINIT = "(( $+functions[compdef] )) || { autoload -U compinit && compinit }\n"
"""For a .zshrc that has not switched zsh's completion on."""

_TAKE_PLUGINS = frozenset(f"plugins {name}" for name in ("info", "enable", "disable", "uninstall"))
_TAKE_KINDS = ("plugins list",)


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "completion",
        help="Print a completion script for bash, zsh or fish.",
        description='bash: eval "$(core completion bash)" in ~/.bashrc; zsh the same in ~/.zshrc; '
        "fish: core completion fish > ~/.config/fish/completions/core.fish",
    )
    parser.add_argument("shell", nargs="?", choices=SHELLS, help="Shell to print for.")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from argcomplete.shell_integration import shellcode

    if args.shell is None:
        from core.api.errors import ConfigError

        raise ConfigError("CORE-C104", "core completion: name a shell.", hint=f"One of {', '.join(SHELLS)}.")
    print((_COMPINIT if args.shell == "zsh" else "") + shellcode(["core"], shell=args.shell))
    return 0


def answer() -> None:
    """Tell the shell what could stand at its cursor, and end the process.

    Of the command that is typed, all flags are in place; the others are names. That is what makes Tab quick.

    Raises:
        CoreError: The command is unknown, or comes from a plugin that cannot be loaded.
    """
    from argcomplete.finders import CompletionFinder
    from argcomplete.lexers import split_line

    line = os.environ.get("COMP_LINE", "")
    words = split_line(line, int(os.environ.get("COMP_POINT", len(line))))[3]
    parser = parser_for(command_of(words[1:]), with_plugins=True)
    for path, one in commands(parser):
        for action in one._actions:
            completer = _completer(path, action)
            if completer is not None:
                action.completer = completer  # type: ignore[attr-defined]
    CompletionFinder()(parser, always_complete_options=False)


def _completer(path: str, action: argparse.Action) -> Completer | None:
    """Return what knows the values of an argument of the command `path`; None: argcomplete goes by its choices."""
    section, _, name = action.dest.partition(".")
    if section == "select" and (kind := kind_chosen_by(name)):
        return listed(kind.group)
    if action.dest in ("select.disable_plugin", "select.plugins"):
        return listed(None)
    if path in _TAKE_PLUGINS and not action.option_strings:
        return listed(None)
    if action.dest == "model.model":
        return _models
    choices = _choices(path, action.dest)
    return (lambda **_: choices) if choices else None


def _choices(path: str, name: str) -> Iterable[str]:
    """Return the values of an argument, if they are few: an option's, those of logging, or the kinds of plugin."""
    if name in ("log_level", "log_format"):
        return logs.LEVELS if name == "log_level" else logs.FORMATS
    if name == "kind" and path in _TAKE_KINDS:
        return [group.removeprefix("core.") for group in every_kind()]
    if "." not in name:
        return ()
    from core.config.fields import fields_by_path

    field = fields_by_path().get(name)
    return field.choices if field else ()


def _models(prefix: str, **_: Any) -> list[str]:
    """Return the models that are on this machine, as `core ls` lists them, and files."""
    from core.cli.host.models import AllModels

    return AllModels().complete(prefix)
