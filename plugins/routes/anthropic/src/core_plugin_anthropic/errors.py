"""Errors in Anthropic's words."""

from __future__ import annotations

from typing import Any

from core.api import Dialect, RequestError

OVERLOADED = 529
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}


def status(error: RequestError) -> int:
    """Return the HTTP status: what others call unavailable is overloaded here, and clients try again."""
    return OVERLOADED if error.status == 503 else error.status


def body(error: RequestError) -> dict[str, Any]:
    """Return Anthropic's error object."""
    code, message = status(error), error.message
    kind = _TYPES.get(code, "invalid_request_error" if code < 500 else "api_error")
    if error.param is not None and error.param not in message:
        message = f"{error.param}: {message}"
    return {"type": "error", "error": {"type": kind, "message": message}}


DIALECT = Dialect(body, status)
