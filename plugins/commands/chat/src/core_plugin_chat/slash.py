"""The commands of a chat: lines that begin with a slash."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core_plugin_chat.chat import Session

_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)
_NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Slash:
    """One command: its argument as `/help` shows it, what it does, and how."""

    argument: str
    help: str
    run: Callable[[Session, str], None]


def command(message: str) -> tuple[str, str] | None:
    """Return name and argument if a message is a command; `/etc/hosts` is none, and `//help` means `/help`."""
    found = _COMMAND.fullmatch(message)
    return (found[1], (found[2] or "").strip()) if found else None


def execute(session: Session, name: str, argument: str) -> None:
    """Carry out a command; one that does not exist is a message to the user."""
    if name not in COMMANDS:
        hint = (
            session.host.terminal.meant(f"/{name}", [f"/{known}" for known in COMMANDS]) or "/help lists what there is."
        )
        session.say(f"there is no /{name}. {hint} To send it as a message, write //{name}.")
        return
    COMMANDS[name].run(session, argument)


def _help(session: Session, argument: str) -> None:
    rows = [(f"/{name} {one.argument}".rstrip(), one.help) for name, one in COMMANDS.items() if one.help]
    width = max(len(row[0]) for row in rows)
    session.say("\n".join(f"{usage:<{width}}  {text}" for usage, text in rows))
    session.say('A \\ at the end of a line goes on in the next one; """ begins and ends a text of several lines.')
    session.say("Ctrl-C stops an answer, a second one leaves; Ctrl-D leaves.")


def _clear(session: Session, argument: str) -> None:
    session.conversation.turns.clear()
    session.say("the conversation is forgotten.")


def _system(session: Session, argument: str) -> None:
    if argument:
        session.conversation.system = None if argument == _NOTHING else argument
    session.say(f"system prompt: {session.conversation.system or 'none'}")


def _save(session: Session, argument: str) -> None:
    path = _path(session, argument)
    if path is not None:
        session.conversation.save(session.host.files, path, session.source.model)
        session.say(f"{len(session.conversation.messages)} messages written to {path}.")


def _load(session: Session, argument: str) -> None:
    path = _path(session, argument)
    if path is not None:
        session.conversation.load(path)
        session.say(f"{len(session.conversation.messages)} messages read from {path}.")


def _retry(session: Session, argument: str) -> None:
    text = session.withdrawn or session.conversation.withdraw()
    if text is None:
        session.say("there is no message to send again.")
    else:
        session.ask(text)


def _stats(session: Session, argument: str) -> None:
    if argument in ("on", "off"):
        session.stats = argument == "on"
        session.say(f"tokens and speed are shown after each answer: {argument}")
        return
    session.say(session.totals.text())


def _exit(session: Session, argument: str) -> None:
    raise EOFError


def _path(session: Session, argument: str) -> Path | None:
    if not argument:
        session.say("name a file.")
        return None
    return Path(argument).expanduser()


COMMANDS: Mapping[str, Slash] = types.MappingProxyType(
    {
        "help": Slash("", "Show this.", _help),
        "clear": Slash("", "Forget the conversation; the system prompt stays. Also /new.", _clear),
        "new": Slash("", "", _clear),
        "system": Slash("[TEXT]", "Set the system prompt, or show it; - removes it.", _system),
        "retry": Slash("", "Send the last message again and take its answer back.", _retry),
        "save": Slash("FILE", "Write the conversation as JSON.", _save),
        "load": Slash("FILE", "Go on with a conversation that was saved.", _load),
        "stats": Slash("[on|off]", "Show tokens and speed so far, or after each answer.", _stats),
        "exit": Slash("", "Leave. Also /quit, /bye, Ctrl-D.", _exit),
        "quit": Slash("", "", _exit),
        "bye": Slash("", "", _exit),
    }
)
