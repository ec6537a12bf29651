"""The routes of both APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api import Dialect, EngineClient, Reply, RequestError, RouteRegistry, RouteRequest, RouteResponse
from core_plugin_generate.events import event
from core_plugin_generate.llamacpp import LlamaCpp, said
from core_plugin_generate.sglang import SGLang


class GenerateRoutes:
    """Declares the routes; each API answers its own."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._bound: EngineClient | None = None

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the routes."""
        registry.dialect(Dialect(_body, failed=lambda error: event(_body(error))))
        registry.dialect(Dialect(_body, end=b"data: [DONE]\n\n", failed=_broken), place="/generate")
        registry.add("POST", "/generate", self.generate, summary="SGLang's generation")
        for path in ("/get_model_info", "/model_info"):
            registry.add("GET", path, self.model_info, summary="SGLang's description of the model")
        for path in ("/completion", "/completions"):
            registry.add("POST", path, self.completion, summary="llama.cpp's completion")
        registry.add("GET", "/props", self.props, summary="llama.cpp's description of the model")

    def bind(self, client: EngineClient) -> None:
        """Keep the running engine."""
        self._bound = client

    async def generate(self, request: RouteRequest) -> Reply:
        """`POST /generate`."""
        return await SGLang(self._client).generate(request)

    async def model_info(self, request: RouteRequest) -> RouteResponse:
        """`GET /get_model_info`."""
        return await SGLang(self._client).about(request)

    async def completion(self, request: RouteRequest) -> Reply:
        """`POST /completion`."""
        return await LlamaCpp(self._client).completion(request)

    async def props(self, request: RouteRequest) -> RouteResponse:
        """`GET /props`."""
        return await LlamaCpp(self._client).props(request)

    @property
    def _client(self) -> EngineClient:
        if self._bound is None:
            raise RequestError("the engine is not ready yet", status=503)
        return self._bound


def _body(error: RequestError) -> dict[str, Any]:
    return {"error": said(error)}


def _broken(error: RequestError) -> bytes:
    """Return what SGLang's stream ends with where it broke off."""
    return event({"error": {"message": error.message}})
