"""`core complete`: continue texts in the terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from core.cli import talk
from core.cli.talk import INTERRUPTED
from core.cli.ui.lines import Lines


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "complete",
        help="Complete texts with a running server, or with a model in this process.",
        description='Each line is a text of its own; """ begins and ends one of several lines. '
        "Ctrl-C stops a completion, Ctrl-D ends.",
    )
    talk.add_source_flags(parser)
    talk.add_flags(parser, "Complete one text, print the result, and end.")
    parser.fill_later(talk.add_plugin_flags)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Complete texts until the end of input."""
    with closing(talk.open_source(args)) as source:
        text = talk.quick_text(args)
        for prompt in [text] if text is not None else _prompts():
            answer = talk.show(source.complete(prompt, talk.sampling(args)), talk.view_for(args, markdown=False))
            if args.stats:
                print(talk.speed(answer), file=sys.stderr)
            if answer.stopped and (text is not None or not sys.stdin.isatty()):
                return INTERRUPTED
    return 0


def _prompts() -> Iterator[str]:
    lines = Lines("> ")
    while True:
        try:
            yield lines.read()
        except EOFError:
            return
