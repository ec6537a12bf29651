"""The `core` command: finds the sub-command, loads its module alone, and turns errors into one line and a status."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import types
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from core import logs
from core.api.errors import ConfigError, CoreError, RequestError
from core.config.parser import CoreParser
from core.suggest import nearest
from core.version import __version__

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
"""Commands of core that a further word follows; plugins may bring cases of them (`core.cli.plugged`)."""

USAGE_ERROR = 2
INTERRUPTED = 130
_COMPLETING = "_ARGCOMPLETE"
"""Variable of the environment with which a shell asks what could stand at its cursor."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its status: 0, 1 for a failure, 2 for wrong usage or configuration, 130 for Ctrl-C.

    A command that needs a further word and has none prints its help, which is no failure.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words or bool(os.environ.get("CORE_DEBUG"))
    if _last(words, "--log-format", "CORE_LOG_FORMAT") == "json":
        logs.setup("info", "json")  # before the words are understood: what is wrong with them is a record too
    try:
        return _complete() if _COMPLETING in os.environ else _run(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) went away; keep the interpreter from failing again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (CoreError, RequestError) as error:
        if debug:
            raise
        return _report(str(error), USAGE_ERROR if isinstance(error, ConfigError) else 1, error.code)
    except Exception as error:
        if debug:
            raise
        return _report(f"internal error: {type(error).__name__}: {error} (--debug shows the traceback)", 1)


def _report(message: str, status: int, code: str | None = None) -> int:
    sys.stdout.flush()
    said = " ".join(message.split())
    fields = {"event": "failed", "code": code, "status": status}
    logs.tell(f"core: {said}", fields, message=said, stream=sys.stderr, level=logging.ERROR)
    return status


def _complete() -> int:
    from core.cli.completion import answer

    answer()
    return 1  # not reached: the answer ends the process


def _last(words: Sequence[str], flag: str, variable: str) -> str | None:
    """Return the value of a flag where it stands last, else of the variable, before anything is parsed."""
    pairs = zip(words, [*words[1:], ""])
    found = [
        after if word == flag else word.partition("=")[2] for word, after in pairs if word.partition("=")[0] == flag
    ]
    return found[-1] if found else os.environ.get(variable)


def _run(words: list[str]) -> int:
    command = command_of(words)
    parser = parser_for(command, plugged="--version" not in words)
    args = parser.parse_args(words)
    if args.version:
        print(f"core {__version__}")
        return 0
    if not hasattr(args, "run"):
        (_parser_of(parser, command) or parser).print_help()
        return 0
    _set_up_logs(args)
    status: int | None = args.run(args)
    sys.stdout.flush()  # here, where a reader that went away is still handled
    return status or 0


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


def parser_for(command: str | None, *, plugged: bool) -> CoreParser:
    """Return the parser of `core`, complete but for the commands other than `command`; they are named alone.

    Args:
        plugged: Whether plugins' commands are looked for.
    """
    parser = CoreParser(prog="core", description="An LLM inference and serving framework whose parts are plugins.")
    parser.add_argument("--version", action="store_true", help="Print the version.")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=CoreParser)
    bundled = _add_plugged(command, commands) if plugged and command not in COMMANDS else {}
    for name, (module, summary) in COMMANDS.items():
        if name == BUNDLE_BEFORE:
            for one, told in bundled.items():
                commands.add_parser(one, help=told, add_help=False)
        if name == command:
            import_module(module).register(commands)
            if plugged and name in HAVE_CASES:
                _add_cases(name, commands.choices[name])
        else:
            commands.add_parser(name, help=summary, add_help=False)
    add_common(parser)
    return parser


def _add_plugged(command: str | None, commands: Any) -> Mapping[str, str]:
    """Add the plugin's command that was typed; or list them for `core --help`, and return name -> line of the bundle's.

    Raises:
        ConfigError: CORE-C104, there is no such command.
    """
    from core.cli import plugged

    found = plugged.installed()
    if command in found:
        plugged.register(command, commands)
        return {}
    if command is not None:
        known = [*COMMANDS, *found]
        hint = plugged.lead(command) or nearest(command, known) or "See `core --help`."
        raise ConfigError("CORE-C104", f"unknown command {command!r}.", hint=hint)
    cased = plugged.with_cases(HAVE_CASES)
    listed = {name: row.summary for name, row in plugged.bundled().items() if name in found and not row.after}
    others = found.keys() - COMMANDS.keys() - listed.keys()
    for name in sorted(others):
        if not plugged.is_case(name, cased):
            commands.add_parser(name, help=f"From {found[name].owner}.", add_help=False)
    return listed


def _add_cases(command: str, parser: CoreParser) -> None:
    from core.cli import plugged

    plugged.add_cases(command, parser)


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


def _parser_of(parser: argparse.ArgumentParser, command: str | None) -> argparse.ArgumentParser | None:
    return _children(parser).get(command) if command else None


def _set_up_logs(args: argparse.Namespace) -> None:
    level = getattr(args, "log_level", None) or os.environ.get("CORE_LOG_LEVEL") or "info"
    form = getattr(args, "log_format", None) or os.environ.get("CORE_LOG_FORMAT") or "text"
    try:
        logs.setup(level, form)
    except ValueError as error:
        raise ConfigError("CORE-C107", f"{error}.") from None


if __name__ == "__main__":
    sys.exit(main())
