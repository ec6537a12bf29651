"""Answers that take a while: whole or as server-sent events, cancelled as soon as nobody listens."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.api.middleware import SHORT_CUT
from core.api.serving import Dialect, Job
from core.server.dialect import DEFAULT, error_end
from core.server.errors import ApiError, ClientGoneError, as_api_error, log_unexpected
from core.server.outlet import StreamBody
from core.server.state import Lifecycle

EVENTS = "text/event-stream"
_EVENT_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class JobResponse(Response):
    """Runs a job while it watches the connection; the job is cancelled when the client goes or the server stops.

    Errors before the first byte are raised (and become an HTTP status); later ones become an `error` event.

    Args:
        dialect: How errors and the end of a stream are said.
        media_type: Of a stream.
    """

    def __init__(
        self,
        lifecycle: Lifecycle,
        job: Job,
        *,
        stream: bool,
        headers: Mapping[str, str],
        dialect: Dialect = DEFAULT,
        media_type: str = EVENTS,
    ) -> None:
        # No `super().__init__`: it would announce the length of a body that does not exist yet.
        self.status_code = 200
        self.media_type = media_type if stream else "application/json"
        self.background = None
        self.init_headers({**headers, **(_EVENT_HEADERS if stream else {})})
        self._lifecycle = lifecycle
        self._job = job
        self._streams = stream
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = Watch(receive)
        await until_gone(self._lifecycle, watch, self.run(scope, send), begin=True)

    async def run(self, scope: Scope, send: Send) -> None:
        """Run the job, whoever watches the connection."""
        await (self._stream(send, scope.get(SHORT_CUT, send)) if self._streams else self._whole(send))

    async def _whole(self, send: Send) -> None:
        body = await self._job.collect()
        headers = [*self.raw_headers, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, send: Send, write: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        body = StreamBody(head, send, write)
        try:
            await self._job.stream(body)
            await body.room()
            last = self._dialect.end
        except asyncio.CancelledError:
            if not (body.open and self._lifecycle.stopped):
                raise
            last = error_end(self._dialect, stopping())
        except Exception as error:
            if not body.open:
                raise
            log_unexpected(error)
            last = error_end(self._dialect, as_api_error(error))
        await body.end(last)


class Watch:
    """Ends the work for a client that goes: from when its body was read, until then there is none to be asked."""

    __slots__ = ("_news", "_receive", "_work")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._work: asyncio.Task[None] | None = None
        self._news: asyncio.Task[None] | None = None

    @property
    def gone(self) -> bool:
        """Whether the client has gone."""
        return self._news is not None and self._news.done()

    def guard(self, work: asyncio.Task[None]) -> None:
        """Cancel this work once the client goes."""
        self._work = work

    def begin(self) -> None:
        """Wait for the news from now on; harmless when that has begun."""
        work = self._work
        if self._news is None and work is not None:
            self._news = asyncio.create_task(_disconnect(self._receive))
            self._news.add_done_callback(lambda _: work.cancel())

    def end(self) -> None:
        """Wait no longer."""
        if self._news is not None:
            self._news.cancel()


async def until_gone(
    lifecycle: Lifecycle, watch: Watch, work: Coroutine[Any, Any, None], *, begin: bool = False
) -> None:
    """Run `work` until it ends, the client disconnects, or the server stops.

    Args:
        begin: The body has been read, and it is a generation from its beginning; else the work begins the watch, and
            what generates in it counts itself.

    Raises:
        ClientGoneError: The client disconnected; the work was cancelled and has ended.
        ApiError: 503, the server stops.
    """
    task = asyncio.create_task(work)
    watch.guard(task)
    if begin:
        watch.begin()
        lifecycle.work.add(task)
    try:
        await task
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and _cancelled():
            raise
        if watch.gone:
            raise ClientGoneError from None
        if isinstance(error, asyncio.CancelledError):
            raise stopping() from None
        raise
    finally:
        watch.end()
        lifecycle.work.discard(task)


def _cancelled() -> bool:
    """Whether somebody cancels the task that runs this."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def stopping() -> ApiError:
    """Return what is said to whose answer the server's end cuts off."""
    return ApiError(503, "The server is shutting down.", code="draining")


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
