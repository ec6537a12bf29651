"""A server of one command's own: what `--local MODEL`, `core run` and `core run-batch --model` talk to.

It is the server of `core serve` in a thread, on a Unix socket in a folder that only this user can enter. So a model in
this process answers exactly as one behind an address does: it streams, it is stopped by going away, it counts tokens.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import httpx

from core.api.folders import PrivateFolder
from core.api.servers import ServerAddress
from core.cli.client import SOCKET_HOST, Client
from core.engine.child import EngineChild
from core.signals import ended_by
from core.terminal.progress import WeightProgress

if TYPE_CHECKING:
    from core.config.resolved import Options
    from core.selection.resolver import Resolution
    from core.server.http import HttpServer
    from core.server.listen import Listener
    from core.server.state import Lifecycle

_log = logging.getLogger(__name__)


class LocalServer:
    """Starts the engine and serves it; ready when the constructor returns.

    Args:
        options: As for `core serve`; the address in them is not used.

    Attributes:
        path: The socket.
        address: Where requests go.
        key: What requests have to bring, if the options have one.

    Raises:
        CoreError: The model cannot be served; the message says why.
    """

    def __init__(self, options: Options) -> None:
        self._held = ExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._server: HttpServer | None = None
        self._lifecycle: Lifecycle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._closing = False
        self._ready: Future[None] = Future()
        try:
            folder = PrivateFolder()
            self._held.callback(folder.remove)
            self.path, self.key = str(folder.path / "http"), options.server.api_key
            self.address = ServerAddress(SOCKET_HOST, self.path)
            from core.server.edge import PRIVATE

            server = options.server.model_copy(update={**PRIVATE, "uds": self.path})
            self._start(options.model_copy(update={"server": server}))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the server and the engine. Harmless when called again."""
        # Written before the loop is looked at; the thread does it the other way round, so that one of them sees it.
        self._closing = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the thread has ended
                self._loop.call_soon_threadsafe(self._end)
        self._held.close()

    def _start(self, options: Options) -> None:
        from core.selection.resolver import resolve

        self._held.enter_context(ended_by(signal.SIGTERM, signal.SIGHUP))
        child = self._held.enter_context(EngineChild())
        with WeightProgress(what="fetching the model") as fetching:
            resolution = resolve(options, progress=fetching.update, shortens=True)
        for problem in resolution.warnings:
            _log.warning("%s %s", problem.code, problem.message)
        child.configure(resolution.config)
        from core.server.listen import bind

        listener = bind(options.server)
        self._held.callback(listener.close)
        work = (resolution, options, child, listener)
        thread = threading.Thread(target=self._run, args=work, name="local-server", daemon=True)
        thread.start()
        self._held.callback(thread.join)
        self._ready.result()

    def _run(self, resolution: Resolution, options: Options, child: EngineChild, listener: Listener) -> None:
        import uvloop

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(resolution, options, child, listener))
        except BaseException as error:
            if self._ready.done():
                _log.error("the local server ended: %s", error)
            else:
                self._ready.set_exception(error)

    async def _serve(self, resolution: Resolution, options: Options, child: EngineChild, listener: Listener) -> None:
        from core.server import launch

        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._closing:
            return
        started = await launch.start(resolution, options, child)
        self._lifecycle = started.app.state.core.lifecycle
        self._server = launch.http_server(started.app, options, lambda: self._ready.set_result(None))
        try:
            await self._server.serve(sockets=[listener.socket])
        finally:
            await started.llm.close()

    def _end(self) -> None:
        if self._server is not None and self._lifecycle is not None:
            self._ending = asyncio.create_task(self._dismiss(self._server, self._lifecycle))
        elif self._task is not None:
            self._task.cancel()

    async def _dismiss(self, server: HttpServer, lifecycle: Lifecycle) -> None:
        """End the server once web sockets have been told so."""
        from core.server.supervisor import LAST_WORDS_SECONDS

        await lifecycle.dismiss(LAST_WORDS_SECONDS)
        server.should_exit = True


class LocalClient(Client):
    """A client of a local server, which ends with it."""

    def __init__(self, options: Options) -> None:
        self._local = LocalServer(options)
        transport = httpx.HTTPTransport(uds=self._local.path)
        super().__init__(SOCKET_HOST, api_key=self._local.key, transport=transport, place="")

    def close(self) -> None:
        """Close the connection and end the server."""
        super().close()
        self._local.close()
