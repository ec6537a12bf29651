"""`GET /v1/streams`, `GET` and `DELETE /v1/stream/{id}`, and the layer around all routes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import orjson

from core.api import EngineClient, RequestError, RouteRegistry, RouteRequest, RouteResponse
from core.api.bodies import invalid
from core.api.middleware import AsgiApp
from core_plugin_resumable.layer import ID_HEADER, ResumeLayer
from core_plugin_resumable.store import Stream, StreamStore

_LONGEST_NUMBER = 12
_TYPE = "content-type"


class ResumableRoutes:
    """The routes, the layer, and the streams that both know.

    Attributes:
        store: Keeps the events; None where the server keeps none.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.store: StreamStore | None = None
        self._client: EngineClient

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the routes. The list is the operator's: an id is all it takes to read a stream."""
        registry.layer(self._layer)
        registry.add("GET", "/v1/streams", self.streams, scope="admin")
        registry.add("GET", "/v1/stream/{name}", self.read, streams=True)
        registry.add("DELETE", "/v1/stream/{name}", self.delete)

    def bind(self, client: EngineClient) -> None:
        """Requests come from now on."""
        self._client = client
        seconds, size = client.settings["resume_seconds"], client.settings["resume_bytes"]
        self.store = StreamStore(seconds, size) if seconds else None

    def _layer(self, app: AsgiApp) -> AsgiApp:
        return app if self.store is None else ResumeLayer(app, self.store, self._client)

    async def streams(self, request: RouteRequest) -> RouteResponse:
        """Return every stream that can be read."""
        return _json({"object": "list", "data": [_row(stream) for stream in self._kept().all()]})

    async def read(self, request: RouteRequest) -> RouteResponse:
        """Return what follows the event that the client has last, `Last-Event-ID` or `?after=`; 204 for nothing."""
        store = self._kept()
        stream = store.find(request.path_params["name"])
        after = _number(request.headers.get("last-event-id") or request.query.get("after") or "0")
        if stream.finished and after == stream.last:
            return RouteResponse(status=204, media_type=None)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in stream.headers}
        media_type = headers.pop(_TYPE, None)
        headers[ID_HEADER.decode()] = stream.id
        return RouteResponse(_rest(store, stream, after), media_type=media_type, headers=headers)

    async def delete(self, request: RouteRequest) -> RouteResponse:
        """Forget a stream; a generation behind it ends."""
        store = self._kept()
        stream = store.find(request.path_params["name"])
        store.drop(stream)
        return _json({"id": stream.id, "object": "stream", "deleted": True})

    def _kept(self) -> StreamStore:
        if self.store is None:
            message = "Streams are not kept on this server: start it with --resume-seconds."
            raise RequestError(message, code="resume_off", status=404)
        return self.store


async def _rest(store: StreamStore, stream: Stream, after: int) -> AsyncGenerator[bytes, None]:
    token = store.attach(stream, after)
    try:
        yield b""  # the head goes out at once, the next event when it comes
        async with aclosing(store.events(stream, token)) as events:
            async for data in events:
                yield data
    finally:
        store.detach(stream, token)


def _json(value: Any) -> RouteResponse:
    return RouteResponse(orjson.dumps(value))


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
