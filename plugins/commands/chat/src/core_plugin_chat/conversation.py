"""The messages of a chat: kept, taken back, written to a file and read from one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from core.api import ConfigError, WholeFiles

Message = dict[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool")


class Conversation:
    """Messages of a conversation, with the system prompt in front.

    Attributes:
        system: The system prompt, or None.
        turns: The messages after it.
    """

    def __init__(self, system: str | None = None) -> None:
        self.system = system or None
        self.turns: list[Message] = []

    @property
    def messages(self) -> list[Message]:
        """All messages, as a request has them."""
        start: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        return [*start, *self.turns]

    def ask(self, text: str) -> None:
        """Add the user's message."""
        self.turns.append({"role": "user", "content": text})

    def answer(self, text: str) -> None:
        """Add the model's message."""
        self.turns.append({"role": "assistant", "content": text})

    def withdraw(self) -> str | None:
        """Take the user's last message back, and what came after it; None if there is none."""
        for index in range(len(self.turns) - 1, -1, -1):
            if self.turns[index]["role"] == "user":
                text = self.turns[index]["content"]
                del self.turns[index:]
                return text if isinstance(text, str) else None
        return None

    def save(self, files: WholeFiles, path: Path, model: str) -> None:
        """Write the conversation as JSON, in the form of a request. Raises `ConfigError`, CORE-C184."""
        document = {"model": model, "messages": self.messages}
        try:
            files.write(path, json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n")
        except OSError as error:
            raise ConfigError("CORE-C184", f"{path} cannot be written: {error.strerror}.") from None

    def load(self, path: Path) -> None:
        """Replace the conversation by that of a file.

        Raises:
            ConfigError: CORE-C184, it cannot be read or is no conversation; nothing has changed then.
        """
        messages = _read(path)
        has_system = bool(messages) and messages[0]["role"] == "system"
        self.system = messages[0]["content"] if has_system else None
        self.turns = messages[1:] if has_system else messages


def _read(path: Path) -> list[Message]:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError("CORE-C184", f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ConfigError("CORE-C184", f"{path} is no conversation: {error}.") from None
    messages = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(messages, list) or not all(map(_is_message, messages)):
        text = f"{path} is no conversation: it has no list of messages with role and content."
        raise ConfigError("CORE-C184", text, hint="`/save FILE` writes one; so does anything that writes requests.")
    return messages


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and value.get("role") in ROLES and "content" in value
