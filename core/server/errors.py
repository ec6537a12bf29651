"""Errors as clients see them: one shape, one renderer, nothing of the inside."""

from __future__ import annotations

import logging
import re
from http import HTTPStatus

from pydantic import ValidationError
from starlette.exceptions import HTTPException

from core.api.errors import CoreError, RequestError

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 1
_LONGEST_MESSAGE = 1000
INTERNAL = "internal_error"
"""The code of whatever is nobody's but the server's affair."""

_INTERNAL = "An internal error occurred; the request was not completed."
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")
_FILE_PATH = re.compile(r"(?<![\w/:.])/(?:[\w.@+-]+/)+[\w.@+-]*")
_UNION_TAG = re.compile(r"str|int|float|bool|none")
_CLASS = re.compile(r" or instance of \w+")
_SHOULD_BE = "Input should be "
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class ApiError(RequestError):
    """An answer other than success, as the server itself gives it.

    Args:
        status: HTTP status.
        message: What is wrong, for the client.
        param: Request field at fault.
        code: Short machine-readable reason.
        headers: Further response headers.
        reason: What the refusal counts as, where its code does not say (see `core.server.refusals`).
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message, param=param, code=code, status=status)
        self.reason = reason
        self.headers = dict(headers or {})
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.headers.setdefault("retry-after", str(RETRY_AFTER_SECONDS))

    def reworded(self, message: str, param: str | None) -> ApiError:
        """Return the same error in other words."""
        return ApiError(self.status, message, param=param, code=self.code, headers=self.headers, reason=self.reason)

    def told(self) -> RequestError:
        """Return the error as clients are told of it, with nothing of the inside."""
        return RequestError(scrub(self.message), param=self.param, code=self.code, status=self.status)


class ClientGoneError(Exception):
    """The client closed its connection; nobody is left to answer."""


def scrub(message: str) -> str:
    """Take memory addresses and file paths out of a message, and bound its length."""
    text = _FILE_PATH.sub("<path>", _ADDRESS.sub("<address>", message))
    return text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "..."


def as_api_error(error: BaseException) -> ApiError:
    """Translate any exception; what is not meant for clients becomes a plain 500."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestError):
        status = error.status if 400 <= error.status < 600 else 500  # plugins raise them too
        return ApiError(status, error.message, param=error.param, code=error.code)
    if isinstance(error, CoreError):
        return ApiError(503, f"The engine cannot serve this request ({error.code}).", code=error.code)
    if isinstance(error, ValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        return _http(error)
    if isinstance(error, RecursionError):
        return ApiError(400, "The request is nested too deeply.", code="too_deep")
    return ApiError(500, _INTERNAL, code=INTERNAL)


def log_unexpected(error: BaseException) -> None:
    """Log an error that is no answer to a client's mistake; hostile `__str__` methods are survived."""
    if isinstance(error, (RequestError, ValidationError, HTTPException)):
        return
    try:
        text = str(error)
    except Exception:
        text = "<no message>"
    known = isinstance(error, CoreError)
    logger.error("request failed due to %s: %s", type(error).__name__, text, exc_info=None if known else error)


def _invalid(error: ValidationError) -> ApiError:
    """Report the first problem; the rejected value itself is not repeated."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    param = _field_path(errors[0]["loc"])
    # A field that takes several types is wrong in as many ways, each of which is a way to make it right.
    same = dict.fromkeys(_plain(str(one["msg"])) for one in errors if _field_path(one["loc"]) == param)
    message, *others = same
    for other in others:
        message += f" or {other.removeprefix(_SHOULD_BE)}" if other.startswith(_SHOULD_BE) else f"; {other}"
    return ApiError(400, f"{param}: {message}" if param else message, param=param)


def _plain(message: str) -> str:
    """Say it in JSON's words, not in Python's."""
    return _CLASS.sub("", message).replace("valid dictionary", "valid object")


def _field_path(loc: tuple[int | str, ...]) -> str | None:
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif _FIELD.fullmatch(part) and not _UNION_TAG.fullmatch(part):
            path += f".{part}" if path else part
    return path or None


def _http(error: HTTPException) -> ApiError:
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.NOT_FOUND:
        return ApiError(404, "There is no such route.", code="route_not_found", headers=headers)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return ApiError(405, "This route does not have this method.", code="method_not_allowed", headers=headers)
    return ApiError(error.status_code, HTTPStatus(error.status_code).phrase, headers=headers)
