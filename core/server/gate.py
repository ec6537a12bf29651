"""The outermost layer: request ids, keys, one place where every error becomes an answer, one count per request."""

from __future__ import annotations

import logging
import os
import re
import time
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.api.middleware import SHORT_CUT
from core.api.serving import error_type
from core.logs import FIELDS
from core.server.account import Account, accounted
from core.server.auth import KeyCheck, is_local
from core.server.dialect import error_answer
from core.server.errors import ClientGoneError, as_api_error, log_unexpected
from core.server.metrics import CLIENT_GONE, UNMATCHED
from core.server.serving.caller import authenticated
from core.server.state import ServerState

logger = logging.getLogger(__name__)

_CLIENT_ID = re.compile(rb"[!-~]{1,128}")
_WEBSOCKET_REFUSED = {"type": "websocket.close", "code": 1008}
_HTTP_ANSWER = "websocket.http.response"
_HEADS = frozenset({"http.response.start", f"{_HTTP_ANSWER}.start", "websocket.accept"})


class Gate:
    """ASGI middleware around the routes.

    Args:
        app: The application.
        state: What the routes share.
        sockets: Answers requests for web sockets in place of the application.
    """

    def __init__(self, app: ASGIApp, state: ServerState, sockets: ASGIApp) -> None:
        self._app = app
        self._sockets = sockets
        self._state = state
        server = state.options.server
        self._keys = KeyCheck(
            server.api_key,
            server.admin_api_key,
            admin_paths=state.admin_paths,
            public_paths=state.public_paths,
            key_headers=state.key_headers,
            local=is_local(server),
        )
        self._log = server.log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; whatever goes wrong inside is answered here."""
        if scope["type"] == "http":
            await self._answer(self._app, scope["method"], scope, receive, send)
        elif scope["type"] == "websocket":  # without a method: no file is meant that everybody may GET
            await self._answer(self._sockets, "", scope, receive, _refusing(scope, send))
        else:
            await self._app(scope, receive, send)

    async def _answer(self, app: ASGIApp, method: str, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        answer, account = OutgoingResponse(send, _request_id(scope)), Account()
        try:
            refusal = self._keys.check(scope["path"], scope["headers"], method)
            if refusal is not None:
                raise refusal
            scope.setdefault(SHORT_CUT, send)  # a layer outside may have looked further ahead
            with authenticated(self._keys.key_of(scope["headers"])), accounted(account):
                await app(scope, receive, answer.send)
        except ClientGoneError:
            answer.status = answer.status or CLIENT_GONE
        except Exception as error:
            log_unexpected(error)
            account.error = as_api_error(error)
            if answer.status is None:
                dialect = self._state.dialect(scope["path"], scope["headers"])
                await error_answer(dialect, account.error)(scope, receive, answer.send)
        finally:
            self._count(scope, answer, account, time.perf_counter() - started)

    def _count(self, scope: Scope, answer: OutgoingResponse, account: Account, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", UNMATCHED)
        status = answer.status or CLIENT_GONE
        self._state.metrics.answered(route, status, account.error)
        if self._log:
            name, ms = answer.request_id.decode("ascii"), seconds * 1000
            fields = {
                "method": scope.get("method", "GET"),
                "route": route,
                "status": status,
                "ms": round(ms, 1),
                "request_id": name,
                "model": self._state.llm.model_name,
                "prompt_tokens": account.prompt_tokens,
                "completion_tokens": account.completion_tokens,
                "cached_tokens": account.cached_tokens,
                "error": account.error and (account.error.code or error_type(account.error.status)),
            }
            logger.info("%s %d %.1f ms %s", route, status, ms, name, extra={FIELDS: fields})


class OutgoingResponse:
    """One response on its way out: gets the request id, remembers its status."""

    def __init__(self, send: Send, request_id: bytes) -> None:
        self._send = send
        self.request_id = request_id
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] in _HEADS:
            self.status = message.get("status", HTTPStatus.SWITCHING_PROTOCOLS.value)
            headers: list[Any] = [*message.get("headers", ()), (b"x-request-id", self.request_id)]
            message = {**message, "headers": headers}
        await self._send(message)


def _refusing(scope: Scope, send: Send) -> Send:
    """Return what sends to a web socket, which a server may only be able to close where it is refused."""
    if _HTTP_ANSWER in (scope.get("extensions") or {}):
        return send

    async def close(message: Message) -> None:
        if message["type"] == f"{_HTTP_ANSWER}.start":
            await send(_WEBSOCKET_REFUSED)
        elif message["type"] != f"{_HTTP_ANSWER}.body":
            await send(message)

    return close


def _request_id(scope: Scope) -> bytes:
    """Return the client's id if it is a decent header value; it is only echoed, never used as a key."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _CLIENT_ID.fullmatch(value):
            return bytes(value)
    return os.urandom(16).hex().encode()
