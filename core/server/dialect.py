"""How an API says errors, and how its streams end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import orjson
from starlette.responses import Response

from core.server.errors import ApiError


@dataclass(frozen=True, slots=True)
class Dialect:
    """The error shape of one family of routes.

    Attributes:
        body: Makes the error object.
        status: Chooses the HTTP status.
        end: What a stream ends with, after an error too.
    """

    body: Callable[[ApiError], dict[str, Any]]
    status: Callable[[ApiError], int] = attrgetter("status")
    end: bytes = b""

    def response(self, error: ApiError) -> Response:
        """Return the error as an HTTP answer."""
        return Response(orjson.dumps(self.body(error)), self.status(error), error.headers, "application/json")

    def failed(self, error: ApiError) -> bytes:
        """Return the end of a stream that broke off: an `error` event, which clients raise."""
        return b"event: error\ndata: " + orjson.dumps(self.body(error)) + b"\n\n" + self.end


OPENAI = Dialect(body=ApiError.body, end=b"data: [DONE]\n\n")
