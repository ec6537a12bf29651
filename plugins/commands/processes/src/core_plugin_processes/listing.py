"""`core ps`: the servers of this user that are running."""

from __future__ import annotations

import argparse
import json
import time

from core.api import CommandHost

HEADER = ("model", "url", "pid", "up")
_FACTS = ("pid", "started", "url", "model", "version")


class Ps:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._host = host

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags."""
        parser.description = "List the servers that this user started with `core serve` on this machine."
        parser.add_argument("--json", action="store_true", help="Print JSON.")

    def run(self, args: argparse.Namespace) -> int:
        """Print one line for each server."""
        servers, terminal, now = self._host.servers.running(), self._host.terminal, time.time()
        if args.json:
            print(json.dumps([{name: getattr(one, name) for name in _FACTS} for one in servers], indent=2))
            return 0
        rows = [(one.model, one.url, str(one.pid), terminal.duration(now - one.started)) for one in servers]
        print(terminal.table(HEADER, rows) if rows else "no server is running")
        return 0
