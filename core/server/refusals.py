"""Reasons of refusals, as `core_admission_rejections_total` counts them: a closed set, which plugins cannot extend."""

from __future__ import annotations

import types
from collections.abc import Mapping
from http import HTTPStatus

from core.server.errors import ApiError

GRAMMAR = "grammar"
NOTHING = ""
"""Reason of an answer with an error status that refuses nothing: a probe's."""

_AS_THEY_ARE = (
    *("queue_full", "sockets_full", "draining", "engine", "missing_api_key", "invalid_api_key", "model_not_found"),
    *("body_too_large", "body_too_slow", "head_too_large", "invalid_http", "invalid_json", "unsupported_media_type"),
    *("route_not_found", "method_not_allowed", "unsupported_parameter", "unknown_field", "template_timeout", "cors"),
)
REASONS: Mapping[str, str] = types.MappingProxyType(
    {code: code for code in _AS_THEY_ARE}
    | {"context_length_exceeded": "too_long", "overloaded": "queue_full", "CORE-P108": "plugin"}
    | dict.fromkeys(("too_deep", "too_many_entries"), "body_too_complex")
    | dict.fromkeys(("admin_scope", "admin_closed"), "admin_key")
    | dict.fromkeys(("unsupported_content", "unsupported_tool", "not_implemented"), "unsupported_parameter")
)
"""Code of an error -> the reason that it counts as; other codes count by their status."""

BY_STATUS: Mapping[int, str] = types.MappingProxyType(
    {
        401: "invalid_api_key",
        403: "forbidden",
        404: "not_found",
        405: "method_not_allowed",
        408: "body_too_slow",
        413: "body_too_large",
        415: "unsupported_media_type",
        429: "rate_limit",
        503: "engine",
    }
)

_OF_THE_ENGINE = frozenset({"engine_request_error", "aborted"})
"""Codes of requests that the engine had and did not finish: their ends are counted by finish reason."""


def reason_of(status: int, error: ApiError | None) -> str | None:
    """Return the reason that an answer counts as; None if it is no refusal.

    Args:
        status: Of the answer.
        error: What it was made of, where that is known: a route may make its own.
    """
    if status < HTTPStatus.BAD_REQUEST:
        return None
    found = None
    if error is not None:
        if error.reason == NOTHING or error.code in _OF_THE_ENGINE:
            return None
        found = error.reason or REASONS.get(error.code or "")
    return found or BY_STATUS.get(status, "invalid_request" if status < 500 else "internal_error")
