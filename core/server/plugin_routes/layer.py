"""Layers of plugins around the routes: what one does wrong is told apart from what goes wrong behind it."""

from __future__ import annotations

import logging
from contextvars import ContextVar

from starlette.types import ASGIApp, Receive, Scope, Send

from core.api.middleware import AsgiApp, Layer
from core.plugins.drivers import describe
from core.server.errors import INTERNAL, ApiError, ClientGoneError, as_api_error

logger = logging.getLogger(__name__)

_passed: ContextVar[list[Exception] | None] = ContextVar("core_passed_errors", default=None)
"""Errors raised behind the layers, for the request that is being answered; tasks that a layer starts share them."""


class PluginLayer:
    """One layer and whose it is; `around` puts it into the application, `bind` makes it."""

    def __init__(self, owner: str, layer: Layer) -> None:
        self.owner, self._layer = owner, layer
        self._routes: ASGIApp | None = None
        self._behind: AsgiApp = self._pass_on
        self._made: AsgiApp = self._behind

    def bind(self) -> None:
        """Let the plugin make its layer, which may be none. Raises what the plugin raises."""
        self._made = self._layer(self._behind)

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return what answers in front of an application; the application itself if the plugin wants no layer."""
        self._routes = app
        return app if self._made is self._behind else self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._pass_on(scope, receive, send)
            return
        known = _passed.get()
        passed: list[Exception] = [] if known is None else known
        token = _passed.set(passed)
        try:
            await self._made(scope, receive, send)
        except Exception as error:
            if any(error is one for one in passed) or as_api_error(error).code != INTERNAL:
                raise
            logger.error("CORE-P108 route plugin %s: its layer raised %s", self.owner, describe(error))
            raise ApiError(500, f"Route plugin {self.owner} failed (CORE-P108).", code="CORE-P108") from error
        finally:
            _passed.reset(token)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask what is behind the layer. That a client has left is nothing that a layer has to know of."""
        assert self._routes is not None  # nothing is asked before the application is made
        try:
            await self._routes(scope, receive, send)
        except ClientGoneError:
            return
        except Exception as error:
            passed = _passed.get()
            if passed is not None:
                passed.append(error)
            raise
