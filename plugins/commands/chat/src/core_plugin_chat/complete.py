"""`core complete`: continue texts in the terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing

from core.api import CommandHost
from core_plugin_chat import talk
from core_plugin_chat.lines import Lines
from core_plugin_chat.talk import INTERRUPTED


class Complete:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._host = host

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags."""
        parser.description = (
            'Each line is a text of its own; """ begins and ends one of several lines. '
            "Ctrl-C stops a completion, Ctrl-D ends."
        )
        talk.add_source_flags(parser, self._host.servers.usual)
        talk.add_flags(parser, "Complete one text, print the result, and end.")
        talk.add_plugin_flags(parser, self._host.options)

    def run(self, args: argparse.Namespace) -> int:
        """Complete texts until the end of input."""
        with closing(talk.open_source(self._host, args)) as source:
            text = talk.quick_text(args)
            for prompt in [text] if text is not None else _prompts():
                deltas, view = source.complete(prompt, talk.sampling(args)), talk.view_for(args, markdown=False)
                answer = talk.show(self._host.signals, deltas, view)
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
