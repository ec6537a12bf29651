"""Answers that take a while: whole or as server-sent events, cancelled as soon as nobody listens."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.api.serving import Dialect, Job
from core.server.dialect import OPENAI, error_end
from core.server.errors import ApiError, ClientGoneError, as_api_error, log_unexpected
from core.server.outlet import SHORT_CUT, StreamBody
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
        dialect: Dialect = OPENAI,
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
        await until_gone(self._lifecycle, receive, self.run(scope, send))

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


async def until_gone(
    lifecycle: Lifecycle, receive: Receive, work: Coroutine[Any, Any, None], *, counted: bool = True
) -> None:
    """Run `work` until it ends, the client disconnects, or the server stops.

    Args:
        counted: It is a generation from its beginning; else what generates in it counts itself.

    Raises:
        ClientGoneError: The client disconnected; the work was cancelled and has ended.
        ApiError: 503, the server stops.
    """
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_disconnect(receive))
    watch.add_done_callback(lambda _: task.cancel())
    if counted:
        lifecycle.work.add(task)
    try:
        await task
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and _cancelled():
            raise
        if watch.done():
            raise ClientGoneError from None
        if isinstance(error, asyncio.CancelledError):
            raise stopping() from None
        raise
    finally:
        watch.cancel()
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
