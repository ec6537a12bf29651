"""Messages as a user types them: one line, several lines, or what stands between triple quotes."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

QUOTES = '"""'
_REMEMBERED = 1000
_PRIVATE = 0o600


class Lines:
    """Reads messages from standard input.

    A line that ends with a backslash goes on in the next one; text between triple quotes may have any number of lines,
    and so may what is pasted into a terminal that can tell (bracketed paste).

    Args:
        mark: Shown in front of a message on a terminal.
        history: File that remembers what was typed from one time to the next; None for none.
    """

    def __init__(self, mark: str, history: Path | None = None) -> None:
        self._terminal = sys.stdin.isatty()
        self._mark = mark
        self._more = ".".rjust(len(mark.rstrip()), ".") + " " * (len(mark) - len(mark.rstrip()))
        self._history = history
        self._readline = _editing() if self._terminal else None
        if self._readline is not None and history is not None:
            with contextlib.suppress(OSError):
                self._readline.read_history_file(history)

    def read(self) -> str:
        """Return the next message, which is not empty.

        Raises:
            EOFError: The input ended (Ctrl-D).
            KeyboardInterrupt: Ctrl-C; what was typed is forgotten.
        """
        while True:
            message = self._message()
            if message.strip():
                return message

    def close(self) -> None:
        """Write the history; one that cannot be written is not worth an error."""
        if self._readline is None or self._history is None:
            return
        self._readline.set_history_length(_REMEMBERED)
        with contextlib.suppress(OSError):
            self._history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._readline.write_history_file(self._history)
            self._history.chmod(_PRIVATE)

    def _message(self) -> str:
        first = self._line(self._mark).strip()
        if first.startswith(QUOTES):
            return self._quoted(first.removeprefix(QUOTES))
        lines = [first]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1].removesuffix("\\")
            if not self._next(lines.append):
                break
        return "\n".join(lines).strip()

    def _quoted(self, first: str) -> str:
        lines = [first]
        while not lines[-1].rstrip().endswith(QUOTES):
            if not self._next(lines.append):
                break
        return "\n".join(lines).rstrip().removesuffix(QUOTES).strip("\n")

    def _next(self, take: Callable[[str], None]) -> bool:
        try:
            take(self._line(self._more))
        except EOFError:
            return False
        return True

    def _line(self, mark: str) -> str:
        if self._terminal and not sys.stdout.isatty():
            # `input` would write the prompt to standard output, which somebody else reads.
            print(mark, end="", file=sys.stderr, flush=True)
        return readable(input(mark if self._terminal and sys.stdout.isatty() else ""))


def readable(text: str) -> str:
    """Return a text that Python was given, with U+FFFD for bytes that were no UTF-8: no server takes such a text."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def history_file() -> Path:
    """Return where the history of `core chat` is kept."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "core" / "chat_history"


def _editing() -> ModuleType | None:
    """Load what gives `input` line editing and history; not every Python has it."""
    try:
        return importlib.import_module("readline")
    except ImportError:
        return None
