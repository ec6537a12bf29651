"""Errors in Anthropic's words."""

from __future__ import annotations

from typing import Any

from core.server.dialect import Dialect
from core.server.errors import ApiError, scrub

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


def status(error: ApiError) -> int:
    """Return the HTTP status: what others call unavailable is overloaded here, and clients try again."""
    return OVERLOADED if error.status == 503 else error.status


def body(error: ApiError) -> dict[str, Any]:
    """Return Anthropic's error object."""
    code = status(error)
    kind = _TYPES.get(code, "invalid_request_error" if code < 500 else "api_error")
    message = scrub(error.message)
    if error.param is not None and error.param not in message:
        message = f"{error.param}: {message}"
    return {"type": "error", "error": {"type": kind, "message": message}}


ANTHROPIC = Dialect(body, status)
