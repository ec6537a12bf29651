"""How streams of responses end, and how they say that something went wrong; there is no `[DONE]`."""

from __future__ import annotations

from core.api import Dialect, RequestError, error_object
from core_plugin_openai.responses.job import ResponseWork, encoded


def stream_dialect(job: ResponseWork) -> Dialect:
    """Return how a stream says, by events of the API, that its response failed."""

    def failed(error: RequestError) -> bytes:
        job.answer.stored = False  # only responses that have ended by themselves are kept
        return encoded(job.failed(error))

    return Dialect(error_object, failed=failed)


SILENT = Dialect(error_object)
"""How streams of the past end: their last event is the response's own."""
