"""`core stop`: end a server as SIGTERM does, which lets running requests finish."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from core.api import CommandHost, ConfigError, EngineError, RunningServer, Servers

WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.05


class Stop:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._known = host.servers

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.description = (
            "End servers that `core ps` lists. Running requests may finish (--drain-timeout of the server)."
        )
        parser.add_argument(
            "servers", nargs="*", metavar="MODEL|URL|PID", help="Which; without one, the only one that is running."
        )
        parser.add_argument("--all", action="store_true", help="Every server of this user.")
        parser.add_argument(
            "--wait",
            type=float,
            default=WAIT_SECONDS,
            metavar="SECONDS",
            help="How long to wait for the end; default: 60.",
        )

    def run(self, args: argparse.Namespace) -> int:
        """End them and wait until they are gone."""
        if args.all and args.servers:
            raise ConfigError("CORE-C185", "--all and a server were given.", hint="Give one of them.")
        running = self._known.running()
        chosen = running if args.all else _chosen(self._known, running, args.servers)
        if not chosen:
            print("no server is running")
            return 0
        _end(self._known, chosen, args.wait)
        return 0


def _chosen(known: Servers, servers: Sequence[RunningServer], names: Sequence[str]) -> list[RunningServer]:
    if not names and len(servers) == 1:
        return list(servers)
    if not names and servers:
        raise known.unclear(servers, "Name one, or --all.")
    found: list[RunningServer] = []
    for name in names:
        matching = [one for one in servers if name.rstrip("/") in (one.url, one.model, str(one.pid))]
        if len(matching) != 1:
            how = "no server that is running is" if not matching else "several servers that are running are"
            text = f"{how} called '{name}'{f': {_listed(matching)}' if matching else ''}."
            hint = "Give the URL or the process id." if matching else f"Running: {_listed(servers) or 'none'}."
            raise EngineError("CORE-S193", text, hint=hint)
        found += [one for one in matching if one not in found]
    return found


def _end(known: Servers, servers: Sequence[RunningServer], seconds: float) -> None:
    for server in servers:
        known.terminate(server)
    deadline = time.monotonic() + seconds
    # Not psutil's own wait: a process that ended is there until its parent asks, which some never do.
    while (left := [server for server in servers if known.is_running(server)]) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for server in servers:
        if server not in left:
            print(f"stopped {server.model} at {server.url} (process {server.pid})")
    if left:
        text = f"{_listed(left)} did not end within {seconds:g} s."
        raise EngineError("CORE-S194", text, hint="It may still finish its requests; a second `core stop` ends it now.")


def _listed(servers: Sequence[RunningServer]) -> str:
    return ", ".join(f"{one.model} at {one.url} (process {one.pid})" for one in servers)
