"""`core run MODEL`: chat with a model in this process."""

from __future__ import annotations

import argparse

from core.api import CommandHost
from core_plugin_chat import chat, talk


class Run:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._host = host

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags."""
        parser.description = (
            "`core chat` with a model that runs for this command alone. The flags of `core serve` apply, "
            "--seed to the answers."
        )
        chat.add_chat_flags(parser)
        self._host.options.add_alone(parser, positional_model=True)
        talk.add_plugin_flags(parser, self._host.options)

    def run(self, args: argparse.Namespace) -> int:
        """Start the model and chat with it."""
        return chat.converse(self._host, args, talk.open_run_source(self._host, args))
