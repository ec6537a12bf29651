"""The HTTP server process: uvicorn with our limits, without its own ideas about signals."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from core.server.errors import ApiError
from core.server.limits import LimitedHttpProtocol
from core.server.socket_protocol import SocketProtocol

KEEP_ALIVE_SECONDS = 30
GRACE_SECONDS = 2
BACKLOG = 2048
COLLECT_AFTER = (5_000, 20, 20)


def relax_collector() -> None:
    """Have this process's garbage collector pass over what was made until now, and look less often at the rest.

    Streams make many objects that are gone a moment later: walking them took a tenth of the time of a chunk.
    """
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


class HttpServer(uvicorn.Server):
    """Serves an application; leaves signals to the supervisor.

    Args:
        app: What to serve.
        on_started: Called once connections are accepted.
        tls: Makes it speak https.
        on_refused: Told of what is answered before the application is asked.
        message_bytes: Most bytes of a message on a web socket; None: there are no web sockets.
    """

    def __init__(
        self,
        app: FastAPI,
        on_started: Callable[[], None],
        tls: ssl.SSLContext | None = None,
        on_refused: Callable[[ApiError], None] | None = None,
        message_bytes: int | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=cast(Any, partial(LimitedHttpProtocol, on_refused=on_refused)),  # it is only called
            ws="none" if message_bytes is None else SocketProtocol,
            ws_max_size=message_bytes or 1,
            ws_per_message_deflate=False,  # texts are a few bytes, sounds are compressed
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
            backlog=BACKLOG,
        )
        super().__init__(config)
        self._on_started = on_started
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, and say so."""
        self.config.ssl = self._tls  # made and checked long ago: loading the configuration knows of none
        await super().startup(sockets=sockets)
        self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Take no signals."""
        yield
