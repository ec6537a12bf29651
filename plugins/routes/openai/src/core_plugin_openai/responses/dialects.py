"""How streams of responses end, and how they say that something went wrong; there is no `[DONE]`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from core.api import Dialect, RequestError
from core_plugin_openai.responses.job import ResponseWork, encoded


def stream_dialect(job: ResponseWork) -> Dialect:
    """Return how a stream says, by events of the API, that its response failed."""

    def failed(error: RequestError) -> bytes:
        job.answer.stored = False  # only responses that have ended by themselves are kept
        return encoded(job.failed(error))

    return Dialect(error_object, failed=failed)


def error_object(error: RequestError) -> dict[str, Any]:
    """Return OpenAI's error object."""
    kind = "invalid_request_error" if error.status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        kind = "service_unavailable_error"
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


SILENT = Dialect(error_object)
"""How streams of the past end: their last event is the response's own."""
