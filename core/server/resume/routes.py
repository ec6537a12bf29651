"""`GET /v1/streams`, `GET` and `DELETE /v1/stream/{id}`."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.api.bodies import invalid
from core.server.answers import json_answer
from core.server.errors import ApiError
from core.server.resume.layer import ID_HEADER, deliver
from core.server.resume.store import Stream, StreamStore
from core.server.routes import Route
from core.server.state import ServerState

_LONGEST_NUMBER = 12


async def list_streams(state: ServerState, request: Request) -> Response:
    """Return every stream that can be read."""
    return json_answer({"object": "list", "data": [_row(stream) for stream in _kept(state).all()]})


async def read_stream(state: ServerState, request: Request) -> Response:
    """Return what follows the event that the client has last, `Last-Event-ID` or `?after=`; 204 for nothing."""
    store = _kept(state)
    stream = store.find(request.path_params["name"])
    after = _number(request.headers.get("last-event-id") or request.query_params.get("after") or "0")
    if stream.finished and after == stream.last:
        return Response(status_code=204)
    return ContinuedResponse(store, stream, after)


async def delete_stream(state: ServerState, request: Request) -> Response:
    """Forget a stream; a generation behind it ends."""
    store = _kept(state)
    stream = store.find(request.path_params["name"])
    store.drop(stream)
    return json_answer({"id": stream.id, "object": "stream", "deleted": True})


class ContinuedResponse(Response):
    """The rest of a stream."""

    def __init__(self, store: StreamStore, stream: Stream, after: int) -> None:
        # No `super().__init__`: it would announce the length of a body that does not exist yet.
        self.status_code = 200
        self.background = None
        self.raw_headers = [*stream.headers, (ID_HEADER, stream.id.encode())]
        self._store, self._stream, self._after = store, stream, after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = self._store.attach(self._stream, self._after)
        left = asyncio.Event()
        watch = asyncio.create_task(_leaving(receive, left))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await deliver(self._store.events(self._stream, token), send, left)
        finally:
            watch.cancel()
            self._store.detach(self._stream, token)


async def _leaving(receive: Receive, left: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
    left.set()


def _kept(state: ServerState) -> StreamStore:
    if state.streams is None:
        message = "Streams are not kept on this server: start it with --resume-seconds."
        raise ApiError(404, message, code="resume_off")
    return state.streams


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_NUMBER:
        raise invalid("Last-Event-ID", "must be the number of an event")
    return int(text)


def _row(stream: Stream) -> dict[str, Any]:
    return {
        "id": stream.id,
        "object": "stream",
        "created": stream.created,
        "path": stream.path,
        "events": stream.last,
        "first_kept": stream.first,
        "bytes": stream.size,
        "finished": stream.finished,
        "being_read": stream.reader is not None,
    }


ALL_STREAMS = Route("GET", "/v1/streams", list_streams)
"""The admin's: an id is all it takes to read a stream."""

ROUTES = (
    Route("GET", "/v1/stream/{name}", read_stream),
    Route("DELETE", "/v1/stream/{name}", delete_stream),
)
