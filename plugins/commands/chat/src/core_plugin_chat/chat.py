"""`core chat` and `core run`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from dataclasses import dataclass

from core.api import CommandHost, CoreError
from core_plugin_chat import slash, talk
from core_plugin_chat.conversation import Conversation
from core_plugin_chat.lines import Lines, history_file
from core_plugin_chat.talk import INTERRUPTED

_MARK = "> "
_HINT = "\n(Ctrl-C again, Ctrl-D or /exit leaves)"


class Chat:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._host = host

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags."""
        parser.description = "/help lists the commands of a chat. Ctrl-C stops an answer, Ctrl-D ends the chat."
        talk.add_source_flags(parser, self._host.servers.usual)
        add_chat_flags(parser)
        talk.add_plugin_flags(parser, self._host.options)

    def run(self, args: argparse.Namespace) -> int:
        """Chat with the server or model that the flags name."""
        return converse(self._host, args, talk.open_source(self._host, args))


def add_chat_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every chat."""
    talk.add_flags(parser, "Send one message, print the answer, and end.")
    parser.add_argument("--system-prompt", metavar="TEXT", help="Message that starts the conversation.")
    parser.add_argument("--no-markdown", action="store_true", help="Print answers as they are on a terminal too.")
    parser.add_argument("--hide-reasoning", action="store_true", help="Do not show what the model thinks first.")
    parser.add_argument("--no-history", action="store_true", help="Do not remember what is typed from time to time.")


def converse(host: CommandHost, args: argparse.Namespace, source: talk.Source) -> int:
    """Chat until the end of input; return the exit status. Closes the source."""
    with closing(source):
        session = Session(host, source, args)
        text = talk.quick_text(args)
        if text is not None:
            session.ask(text)
            return INTERRUPTED if session.stopped else 0
        if not sys.stdin.isatty():
            return session.follow(Lines(""))
        at = f" at {source.place}" if source.place else ""
        session.say(f"chatting with {source.model}{at}; /help lists commands, Ctrl-D leaves.")
        with closing(Lines(_MARK, None if args.no_history else history_file())) as lines:
            return session.loop(lines)


@dataclass(slots=True)
class Totals:
    """Totals of a chat so far; times in seconds."""

    answers: int = 0
    read: int = 0
    generated: int = 0
    writing: float = 0.0

    def add(self, answer: talk.Answer) -> None:
        """Count an answer."""
        self.answers += 1
        self.read += answer.prompt_tokens
        self.generated += answer.tokens
        self.writing += answer.seconds - (answer.wait or 0.0)

    def text(self) -> str:
        """Return the read-out."""
        rate = f", {self.generated / self.writing:.1f} tokens/s" if self.writing > 0 else ""
        return f"{self.answers} answers, {self.read} tokens read, {self.generated} tokens generated{rate}"


class Session:
    """A chat: its conversation, and how answers are asked for and shown.

    Attributes:
        host: What core lends.
        stopped: Whether Ctrl-C ended the last answer.
        stats: Whether tokens and speed are shown after each answer.
        withdrawn: A message that could not be answered, for `/retry`.
    """

    def __init__(self, host: CommandHost, source: talk.Source, args: argparse.Namespace) -> None:
        self.host = host
        self.source = source
        self.conversation = Conversation(args.system_prompt)
        self.stats: bool = args.stats
        self.totals = Totals()
        self.withdrawn: str | None = None
        self.stopped = False
        self._args = args
        self._params = talk.sampling(args)

    def follow(self, lines: Lines) -> int:
        """Answer what a program writes, until its end or the first error."""
        try:
            while not self.stopped:
                self.take(lines.read())
            return INTERRUPTED
        except EOFError:
            return 0

    def loop(self, lines: Lines) -> int:
        """Answer what a user types until they leave. Errors are shown; Ctrl-C twice with nothing between leaves."""
        interrupts, hint = 0, ""
        while interrupts < 2:
            try:
                if hint:
                    self.say(hint)
                hint = ""
                message = lines.read()
                interrupts = 0
                self.take(message)
                interrupts = int(self.stopped)
            except KeyboardInterrupt:
                interrupts += 1
                hint = _HINT
            except EOFError:
                break
            except CoreError as error:
                print(f"core: {error}", file=sys.stderr)
        self.say("")
        return 0

    def take(self, message: str) -> None:
        """Carry out a command or ask the model."""
        self.stopped = False
        found = slash.command(message)
        if found is None:
            self.ask(message.removeprefix("/") if message.startswith("//") else message)
        else:
            slash.execute(self, *found)

    def ask(self, text: str) -> None:
        """Send a message and show the answer; one that was stopped stays in the conversation as far as it came.

        Raises:
            CoreError: No answer; the message is taken back, and `/retry` sends it again.
        """
        self.withdrawn = None
        self.conversation.ask(text)
        view = talk.view_for(self._args, markdown=not self._args.no_markdown)
        try:
            deltas = self.source.chat(self.conversation.messages, self._params)
            answer = talk.show(self.host.signals, deltas, view)
        except CoreError:
            self.withdrawn = self.conversation.withdraw()
            raise
        self.stopped = answer.stopped
        self.conversation.answer(answer.text)
        self.totals.add(answer)
        if self.stats:
            print(talk.speed(answer), file=sys.stderr)

    def say(self, text: str) -> None:
        """Tell the user something that is no answer; a program that reads the answers does not get it."""
        print(text, file=sys.stdout if sys.stdout.isatty() else sys.stderr, flush=True)
