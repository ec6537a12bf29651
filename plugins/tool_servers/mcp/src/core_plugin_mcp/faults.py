"""Errors of the SDK, translated to core's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from mcp import MCPError
from pydantic import ValidationError

from core.api import ToolServerError
from core_plugin_mcp.http import TooLargeError

_INTERNAL = -32603


@contextmanager
def as_server_error() -> Iterator[None]:
    """Raise `ToolServerError` for whatever a server or the way to it did wrong."""
    try:
        yield
    except BaseExceptionGroup as group:
        # The SDK's task groups wrap what went wrong; a cancellation among it is this task's own and goes on as it is.
        faults, others = group.split(Exception)
        if faults is None or others is not None:
            raise
        raise fault_of(_first(faults)) from None
    except Exception as error:
        raise fault_of(error) from None


def fault_of(error: Exception) -> ToolServerError:
    """Return the error for core; its message holds no address and no header."""
    if isinstance(error, ToolServerError):
        return error
    if isinstance(error, MCPError):
        return ToolServerError(error.message, code=error.code)
    if isinstance(error, httpx2.HTTPStatusError):
        status = error.response.status_code
        return ToolServerError(f"The server answers with status {status}.", kind="http", code=status)
    if isinstance(error, TooLargeError):
        return ToolServerError("The server's answer is larger than max_answer_bytes allows.", code=_INTERNAL)
    if isinstance(error, httpx2.TransportError):
        return ToolServerError(f"The server cannot be reached ({type(error).__name__}).", code=_INTERNAL)
    if isinstance(error, ValidationError):
        return ToolServerError("The server's answer does not follow the protocol.", code=_INTERNAL)
    return ToolServerError(f"The connection to the server failed ({type(error).__name__}).", code=_INTERNAL)


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if isinstance(found, Exception) else RuntimeError()
