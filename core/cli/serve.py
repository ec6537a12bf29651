"""`core serve`: resolve the options and serve."""

from __future__ import annotations

import argparse
import logging
from typing import Any

from core.cli.help import add_help_flag
from core.config.flags import add_option_flags
from core.config.load import load_options

_log = logging.getLogger(__name__)


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "serve",
        help="Serve a model over HTTP (OpenAI-compatible).",
        description="Serve a model over HTTP. Every flag is also an environment variable and a key of the file.",
        add_help=False,
    )
    add_help_flag(parser)
    add_option_flags(parser, positional_model=True)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal ends it; return the exit status."""
    options = load_options(args).options
    from core.boot import resolve
    from core.server import launch

    resolution = resolve(options)
    for problem in resolution.warnings:
        _log.warning("%s", " ".join(part for part in (problem.code, problem.message, problem.hint) if part))
    return launch.run(resolution, options)
