"""Servers, as a command meets them: where one is, how to talk to it, and how to start one of core's. Provisional."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from core.api.errors import EngineError
    from core.api.given_options import GivenOptions


class ServerDelta(Protocol):
    """Content of one event of a streamed answer.

    Attributes:
        text, reasoning: New text of the answer, and of what the model thinks before it.
        finish_reason: Why the answer ended, in its last event.
        tokens, prompt_tokens: How many were generated and read, in the end, if the server says it.
    """

    @property
    def text(self) -> str: ...

    @property
    def reasoning(self) -> str: ...

    @property
    def finish_reason(self) -> str | None: ...

    @property
    def tokens(self) -> int | None: ...

    @property
    def prompt_tokens(self) -> int | None: ...


class ServerClient(Protocol):
    """A connection to one OpenAI-compatible server. Its methods raise `CoreError` where the server does not answer.

    Attributes:
        model: The model that requests name: the one that was given, or the server's first.
        place: What a user is told about where the server is; empty for one of this command's own.
    """

    @property
    def model(self) -> str: ...

    @property
    def place(self) -> str: ...

    def chat(self, messages: list[dict[str, Any]], params: dict[str, Any]) -> Iterator[ServerDelta]:
        """Stream the answer to a conversation."""
        ...

    def complete(self, prompt: str, params: dict[str, Any]) -> Iterator[ServerDelta]:
        """Stream the continuation of a text."""
        ...

    def close(self) -> None:
        """Close the connection, and end the server if it is this command's own."""
        ...


class EventDecoder(Protocol):
    """Server-sent events, decoded as their bytes come."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of every event that `chunk` completes."""
        ...


class StartPhase(Protocol):
    """A phase of a server's start that one of its processes reports; times in seconds.

    Attributes:
        name: What is done in it.
        seconds: How long it took.
        ago: How long before the report it ended.
        waiting: Whether it was spent waiting for another process.
    """

    @property
    def name(self) -> str: ...

    @property
    def seconds(self) -> float: ...

    @property
    def ago(self) -> float: ...

    @property
    def waiting(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where requests go.

    Attributes:
        root: What they name: scheme, host and port.
        socket: Path of a Unix socket to connect to instead; None: the host.
    """

    root: str
    socket: str | None = None


class RunningServer(Protocol):
    """A server that this user has started on this machine.

    Attributes:
        pid: Its process.
        started: When that began, in seconds since 1970.
        url: `http://HOST:PORT`, or `unix:PATH`.
        model: Name of the model that it serves.
        version: That of its core.
    """

    @property
    def pid(self) -> int: ...

    @property
    def started(self) -> float: ...

    @property
    def url(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def version(self) -> str: ...


class OwnServer(Protocol):
    """A server of one command's own, which answers as `core serve` does, on a socket that only this user reaches.

    Attributes:
        address: Where it answers.
        key: What requests have to bring, if the options have one.
    """

    @property
    def address(self) -> ServerAddress: ...

    @property
    def key(self) -> str | None: ...

    def close(self) -> None:
        """End it, and its engine. Harmless when called again."""
        ...


class Servers(Protocol):
    """Servers: where one is, how to talk to it, and how to start one of core's.

    Attributes:
        usual: Address of a server whose options say nothing of it.
    """

    @property
    def usual(self) -> str: ...

    def running(self) -> Sequence[RunningServer]:
        """Return the servers of this user, in the order of their starts."""
        ...

    def is_running(self, server: RunningServer) -> bool:
        """Say whether a server is still there."""
        ...

    def terminate(self, server: RunningServer) -> None:
        """Ask a server to end, as SIGTERM does; harmless when it has."""
        ...

    def unclear(self, servers: Sequence[RunningServer], hint: str) -> EngineError:
        """Return the error of a command that means one server while there are these."""
        ...

    def choose(self, url: str | None, model: str | None = None, *, ask: bool = False) -> str:
        """Return the address to talk to: the given one, that of the one server that is running, or the usual one.

        Args:
            url: What the user gave.
            model: Only servers of this model are meant.
            ask: Whether a user at a terminal is asked where several servers are running.

        Raises:
            EngineError: CORE-S193, several servers are running and nobody says which is meant.
        """
        ...

    def address(self, url: str) -> ServerAddress:
        """Return where requests to a server at `http://HOST:PORT`, or at `unix:PATH`, go. Raises as `root`."""
        ...

    def root(self, url: str, flag: str = "--url") -> str:
        """Return a server's address without `/v1`, which users may give or leave out.

        Args:
            flag: What brought it.

        Raises:
            ConfigError: CORE-C183, it is no address.
        """
        ...

    def trust(self, ca: str | None) -> ssl.SSLContext | bool:
        """Return how servers' certificates are checked: by the authorities of a PEM file, or the usual ones.

        Raises:
            ConfigError: CORE-C187, the file cannot be used.
        """
        ...

    def connect(
        self, url: str, *, api_key: str | None, model: str | None, verify: ssl.SSLContext | bool
    ) -> ServerClient:
        """Return a client of the server at `http://HOST:PORT`, or at `unix:PATH`. Raises as `root`."""
        ...

    def own(self, options: GivenOptions) -> OwnServer:
        """Start a server for this command alone; the address in the options is not used. Raises `CoreError`."""
        ...

    def connect_own(self, options: GivenOptions) -> ServerClient:
        """Return a client of such a server, which ends with it. Raises `CoreError`."""
        ...

    def events(self) -> EventDecoder:
        """Return a decoder for one stream."""
        ...

    def reason(self, body: Any) -> str:
        """Return the message of an error body, whichever of the usual forms it has."""
        ...

    def command(self, flags: Sequence[str]) -> list[str]:
        """Return the words that start `core serve` with these flags as a process of its own."""
        ...

    def files(self, options: GivenOptions) -> list[Path]:
        """Return the files of the model that `core serve` with these options reads; fetches what is not here."""
        ...

    def phase(self, message: str) -> StartPhase | None:
        """Return the phase that a record of a server's log reports (`core serve --log-level debug`), if it does."""
        ...
