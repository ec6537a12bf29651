"""The listening socket, claimed before anything slow happens."""

from __future__ import annotations

import errno
import os
import socket
import stat
from dataclasses import dataclass

from core.api.errors import ConfigError
from core.options.server import ServerOptions
from core.server.tls import Certificates, certificates


@dataclass(slots=True)
class Listener:
    """A bound socket.

    Attributes:
        url: `http://HOST:PORT`, with https where it is encrypted, or `unix:PATH`.
        path: File of a Unix socket, removed on close.
        tls: What its connections are encrypted with.
    """

    socket: socket.socket
    url: str
    path: str | None = None
    tls: Certificates | None = None

    def close(self) -> None:
        """Release the address."""
        self.socket.close()
        if self.path is not None and os.path.exists(self.path):
            os.unlink(self.path)


def bind(options: ServerOptions) -> Listener:
    """Bind the address of the options; nothing is accepted before the server listens.

    Raises:
        ConfigError: CORE-S101 when somebody else has the address, CORE-S102 when it cannot be used; as `certificates`.
    """
    tls = certificates(options)
    if options.uds:
        return _bind_unix(options.uds)
    listener = _bind_tcp(options.host, options.port)
    if tls is not None:
        listener.url, listener.tls = listener.url.replace("http:", "https:", 1), tls
    return listener


def _bind_tcp(host: str, port: int) -> Listener:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        hint = "Set --host to an address of this machine."
        raise ConfigError("CORE-S102", f"cannot listen on host '{host}': {error.strerror}.", hint=hint) from None
    sock = socket.socket(family, kind, protocol)
    # Lets a restarted server take its address back from closed connections; a listening one still refuses.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise _refused(f"{host}:{port}", error, "Stop the other server, or set --port (0 picks a free one).") from None
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    return Listener(sock, f"http://{shown}:{sock.getsockname()[1]}")


def _bind_unix(path: str) -> Listener:
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
    except OSError as error:
        sock.close()
        raise _refused(path, error, "Set --uds to a path that can be created.") from None
    return Listener(sock, f"unix:{path}", path)


def _remove_stale(path: str) -> None:
    """Remove the file that a server left behind; a socket that answers is left alone."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(path)
    except ConnectionRefusedError:
        os.unlink(path)
    except OSError:
        return


def _refused(address: str, error: OSError, hint: str) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError("CORE-S101", f"{address} is in use by another process.", hint=hint)
    reason = os.strerror(error.errno) if error.errno else str(error)
    return ConfigError("CORE-S102", f"cannot listen on {address}: {reason}.", hint=hint)
