"""Which of this user's servers a command talks to when no address is given."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.api.errors import EngineError

if TYPE_CHECKING:
    from core.api.servers import RunningServer

DEFAULT_URL = "http://127.0.0.1:8000/v1"


def server_url(given: str | None, model: str | None = None, *, ask: bool = False) -> str:
    """Return the address to talk to: the given one, that of the one server that `core ps` lists, or `DEFAULT_URL`.

    Args:
        given: The value of `--url`.
        model: Only servers of this model are meant.
        ask: Whether a user at a terminal is asked where several servers are running.

    Raises:
        EngineError: CORE-S193, several servers are running and nobody says which is meant.
    """
    if given is not None:
        return given
    from core.server.registry import reachable, running_servers

    servers = running_servers()
    servers = [one for one in servers if one.model == model] or servers
    if not servers:
        return DEFAULT_URL
    if len(servers) == 1:
        return reachable(servers[0].url)
    if not (ask and sys.stdin.isatty() and sys.stderr.isatty()):
        raise several(servers, "Name one with --url.")
    return reachable(_asked(servers).url)


def several(servers: Sequence[RunningServer], hint: str) -> EngineError:
    """Return the error of a command that means one server while there are these."""
    return EngineError("CORE-S193", f"several servers are running: {listed(servers)}.", hint=hint)


def listed(servers: Sequence[RunningServer]) -> str:
    """Return the servers in one line."""
    return ", ".join(f"{one.model} at {one.url} (process {one.pid})" for one in servers)


def _asked(servers: Sequence[RunningServer]) -> RunningServer:
    """Let the user choose, on standard error: standard output is for answers."""
    from core.terminal.tables import table

    rows = [(str(number), one.model, one.url) for number, one in enumerate(servers, 1)]
    print(f"several servers are running:\n{table((), rows, right=(0,))}", file=sys.stderr)
    while True:
        print(f"which one? 1 to {len(servers)}: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise several(servers, "Name one with --url.")
        if line.strip().isdecimal() and 1 <= int(line) <= len(servers):
            return servers[int(line) - 1]
