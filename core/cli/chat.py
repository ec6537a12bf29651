"""`core chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import Any

from core.cli import talk


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "chat",
        help="Chat with a running server, or with a model in this process.",
        description="Ctrl-C stops an answer, Ctrl-D ends the chat, /new forgets the conversation.",
    )
    talk.add_flags(parser, "Send one message, print the answer, and end.")
    parser.add_argument("--system-prompt", metavar="TEXT", help="Message that starts the conversation.")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Chat until the end of input."""
    with closing(talk.open_source(args)) as source:
        conversation = Conversation(source, talk.sampling(args), args.system_prompt, stats=args.stats)
        for message in [args.quick] if args.quick is not None else talk.prompts("> "):
            conversation.say(message)
    return 0


class Conversation:
    """The messages so far, and the way to go on."""

    def __init__(
        self, source: talk.Source, params: dict[str, Any], system_prompt: str | None = None, *, stats: bool = False
    ) -> None:
        self._source = source
        self._params = params
        self._start = [{"role": "system", "content": system_prompt}] if system_prompt else []
        self._stats = stats
        self.messages: list[dict[str, str]] = list(self._start)

    def say(self, message: str) -> None:
        """Send a message and print the answer; an answer that was stopped stays in the history as far as it came."""
        if message == "/new":
            self.messages = list(self._start)
            return
        self.messages.append({"role": "user", "content": message})
        answer = talk.show(self._source.chat(self.messages, self._params), stats=self._stats)
        self.messages.append({"role": "assistant", "content": answer})
