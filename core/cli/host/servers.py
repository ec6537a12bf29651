"""Servers, as commands of plugins meet them. The client, which takes a while to be imported, waits for its use."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.api.servers import ServerAddress
from core.cli.choose import DEFAULT_URL, server_url, several
from core.cli.host.options import loaded_of
from core.cli.sse import EventDecoder
from core.phases import WAITING, parse

if TYPE_CHECKING:
    from core.api.errors import EngineError
    from core.api.given_options import GivenOptions
    from core.api.servers import RunningServer
    from core.cli.client import Client
    from core.cli.local import LocalClient, LocalServer
    from core.server.registry import RunningServer as Registered


@dataclass(frozen=True, slots=True)
class Reported:
    """A phase that a log reports; `StartPhase`."""

    name: str
    seconds: float
    ago: float

    @property
    def waiting(self) -> bool:
        """Whether it was spent waiting for another process."""
        return self.name.startswith(WAITING)


class AllServers:
    """How to find, ask and start servers; `Servers`."""

    usual = DEFAULT_URL

    def running(self) -> list[Registered]:
        """Return the servers of this user."""
        from core.server.registry import running_servers

        return running_servers()

    def is_running(self, server: RunningServer) -> bool:
        """Say whether a server is still there."""
        from core.server.registry import is_running

        return is_running(server)

    def terminate(self, server: RunningServer) -> None:
        """Ask a server to end."""
        from core.server.registry import terminate

        terminate(server)

    def unclear(self, servers: Sequence[RunningServer], hint: str) -> EngineError:
        """Return the error of a command that means one server while there are these."""
        return several(servers, hint)

    def choose(self, url: str | None, model: str | None = None, *, ask: bool = False) -> str:
        """Return the address to talk to."""
        return server_url(url, model, ask=ask)

    def address(self, url: str) -> ServerAddress:
        """Return where requests to a server go."""
        from core.cli.client import SOCKET, SOCKET_HOST, server_root

        if url.startswith(SOCKET):
            return ServerAddress(SOCKET_HOST, url.removeprefix(SOCKET))
        return ServerAddress(server_root(url))

    def root(self, url: str, flag: str = "--url") -> str:
        """Return a server's address without `/v1`."""
        from core.cli.client import server_root

        return server_root(url, flag)

    def trust(self, ca: str | None) -> ssl.SSLContext | bool:
        """Return how servers' certificates are checked."""
        from core.cli.client import trust

        return trust(ca)

    def connect(self, url: str, *, api_key: str | None, model: str | None, verify: ssl.SSLContext | bool) -> Client:
        """Return a client of the server at an address."""
        from core.cli.client import connect

        return connect(url, api_key=api_key, model=model, verify=verify)

    def own(self, options: GivenOptions) -> LocalServer:
        """Start a server for this command alone."""
        from core.cli.local import LocalServer

        return LocalServer(loaded_of(options).options)

    def connect_own(self, options: GivenOptions) -> LocalClient:
        """Return a client of such a server, which ends with it."""
        from core.cli.local import LocalClient

        return LocalClient(loaded_of(options).options)

    def events(self) -> EventDecoder:
        """Return a decoder for one stream."""
        return EventDecoder()

    def reason(self, body: Any) -> str:
        """Return the message of an error body."""
        from core.cli.client import error_text

        return error_text(body)

    def command(self, flags: Sequence[str]) -> list[str]:
        """Return the words that start a server as a process of its own."""
        return [sys.executable, "-m", "core.cli", "serve", *flags]

    def files(self, options: GivenOptions) -> list[Path]:
        """Return the files of the model that `core serve` with these options reads."""
        from core.selection.resolver import resolve

        path = Path(resolve(loaded_of(options).options).config.files.path)
        return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]

    def phase(self, message: str) -> Reported | None:
        """Return the phase that a record of a server's log reports, if it does."""
        found = parse(message)
        return None if found is None else Reported(*found)
