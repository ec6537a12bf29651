"""`core run MODEL`: chat with a model in this process."""

from __future__ import annotations

import argparse
from typing import Any

from core.cli import chat, talk
from core.cli.engine_flags import add_engine_flags


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "run",
        help="Chat with a model in this process.",
        description="`core chat` with a model that runs for this command alone. The flags of `core serve` apply, "
        "--seed to the answers.",
        add_help=False,
    )
    chat.add_chat_flags(parser)
    add_engine_flags(parser, positional_model=True)
    parser.fill_later(talk.add_plugin_flags)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Start the model and chat with it."""
    return chat.converse(args, talk.open_run_source(args))
