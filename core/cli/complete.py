"""`core complete`: continue texts in the terminal."""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import Any

from core.cli import talk


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "complete",
        help="Complete texts with a running server, or with a model in this process.",
        description="Each line is a text of its own. Ctrl-C stops a completion, Ctrl-D ends.",
    )
    talk.add_flags(parser, "Complete one text, print the result, and end.")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Complete texts until the end of input."""
    with closing(talk.open_source(args)) as source:
        for prompt in [args.quick] if args.quick is not None else talk.prompts("> "):
            talk.show(source.complete(prompt, talk.sampling(args)), stats=args.stats)
    return 0
