"""The `core` command: finds the sub-command, loads its module alone, and turns errors into one line and a status."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from core import logs
from core.api.errors import ConfigError, CoreError, RequestError
from core.cli.commands import command_of, parser_for, parser_of
from core.version import __version__

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
    parser = parser_for(command, with_plugins="--version" not in words)
    args = parser.parse_args(words)
    if args.version:
        print(f"core {__version__}")
        return 0
    if not hasattr(args, "run"):
        (parser_of(parser, command) or parser).print_help()
        return 0
    _set_up_logs(args)
    status: int | None = args.run(args)
    sys.stdout.flush()  # here, where a reader that went away is still handled
    return status or 0


def _set_up_logs(args: argparse.Namespace) -> None:
    level = getattr(args, "log_level", None) or os.environ.get("CORE_LOG_LEVEL") or "info"
    form = getattr(args, "log_format", None) or os.environ.get("CORE_LOG_FORMAT") or "text"
    try:
        logs.setup(level, form)
    except ValueError as error:
        raise ConfigError("CORE-C107", f"{error}.") from None


if __name__ == "__main__":
    sys.exit(main())
