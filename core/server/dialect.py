"""Errors on the wire, as an API's dialect says them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
from starlette.responses import Response

from core.api.errors import RequestError
from core.api.serving import Dialect, error_object
from core.server.answers import JSON
from core.server.errors import ApiError

logger = logging.getLogger(__name__)


DEFAULT = Dialect(body=error_object, end=b"data: [DONE]\n\n")
"""Of paths that no plugin has one for."""


def careful(owner: str, dialect: Dialect) -> Dialect:
    """Return a plugin's dialect that says what cannot be said in it as everybody else does."""

    def body(error: RequestError) -> Mapping[str, Any]:
        try:
            found = dict(dialect.body(error))
            orjson.dumps(found)  # what cannot be sent is no error that was said
            return found
        except Exception as wrong:
            logger.error("route plugin %s cannot say an error: %s: %s", owner, type(wrong).__name__, wrong)
            return DEFAULT.body(error)

    return replace(dialect, body=body)


def error_answer(dialect: Dialect, error: ApiError) -> Response:
    """Return an error as an HTTP answer."""
    told = error.told()
    return Response(orjson.dumps(dialect.body(told)), dialect.status(told), error.headers, JSON)


def error_end(dialect: Dialect, error: ApiError) -> bytes:
    """Return the end of a stream that broke off."""
    told = error.told()
    if dialect.failed is not None:
        return dialect.failed(told) + dialect.end
    return b"event: error\ndata: " + orjson.dumps(dialect.body(told)) + b"\n\n" + dialect.end
