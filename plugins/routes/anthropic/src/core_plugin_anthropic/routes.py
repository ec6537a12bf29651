"""`POST /v1/messages`, `POST /v1/messages/render`, `POST /v1/messages/count_tokens`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from core.api import ChatRequest, EngineClient, Reply, RouteRegistry, RouteRequest, RouteResponse
from core.api.bodies import SamplingBody
from core_plugin_anthropic.blocks import BlockWriter
from core_plugin_anthropic.errors import DIALECT
from core_plugin_anthropic.job import MessageJob
from core_plugin_anthropic.models import get_model, list_models
from core_plugin_anthropic.protocol import MessagesBody, PromptBody
from core_plugin_anthropic.request import count_request, message_request, one_call, thinking_budget

PATH = "/v1/messages"
VERSION_HEADER = "anthropic-version"
"""Header that every client of this API sends, and nobody else."""

_UNUSED = frozenset({"service_tier"})


class AnthropicRoutes:
    """The routes and the engine that they ask."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._client: EngineClient

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the routes. Errors are Anthropic's below `/v1/messages`, and to its clients everywhere."""
        registry.dialect(DIALECT, header=VERSION_HEADER)
        registry.add("POST", PATH, self.create, body=MessagesBody, generates=True)
        registry.add("POST", f"{PATH}/render", self.render, body=MessagesBody, generates=True)
        registry.add("POST", f"{PATH}/count_tokens", self.count_tokens, body=PromptBody, generates=True)
        registry.add("GET", "/v1/models", self.models, header=VERSION_HEADER)
        registry.add("GET", "/v1/models/{model:path}", self.model, header=VERSION_HEADER)

    def bind(self, client: EngineClient) -> None:
        """Requests come from now on."""
        self._client = client

    async def create(self, request: RouteRequest) -> Reply:
        """Answer a conversation."""
        body, asked, headers = await self._read(request)
        answer = await self._client.open(asked, prefix="msg")
        shows = not (body.thinking and body.thinking.display == "omitted")
        writer = BlockWriter(show_thinking=shows, one_call=one_call(body))
        return Reply(MessageJob(answer, self._client.model_name, writer), bool(body.stream), headers)

    async def render(self, request: RouteRequest) -> RouteResponse:
        """Return what the engine would be sent; nothing is generated."""
        _, asked, headers = await self._read(request)
        (shown,) = await self._client.describe(asked)
        return RouteResponse(orjson.dumps(shown), headers=headers)

    async def count_tokens(self, request: RouteRequest) -> RouteResponse:
        """Return how many tokens a prompt has."""
        body, fields = await request.read(PromptBody)
        ids = await self._client.render(count_request(body))
        return RouteResponse(orjson.dumps({"input_tokens": len(ids)}), headers=self._unread(body, fields))

    async def models(self, request: RouteRequest) -> RouteResponse:
        """Return a page of the models."""
        return list_models(self._client, request)

    async def model(self, request: RouteRequest) -> RouteResponse:
        """Return a model."""
        return get_model(self._client, request)

    async def _read(self, request: RouteRequest) -> tuple[MessagesBody, ChatRequest, dict[str, str]]:
        """Return the body, what it asks for, and the header that names what has no effect."""
        body, fields = await request.read(MessagesBody)
        bounds = "bounded_thinking" in self._client.abilities
        return (
            body,
            message_request(body, fields, self._client.plugin_fields, bounds=bounds),
            self._unread(body, fields, bounds=bounds),
        )

    def _unread(self, body: PromptBody, fields: Mapping[str, Any], *, bounds: bool = True) -> dict[str, str]:
        """Return the header that names what has no effect."""
        known = set(type(body).model_fields) - _UNUSED
        if isinstance(body, SamplingBody):
            known |= self._client.plugin_fields.keys()
        if thinking_budget(body) is not None and not bounds:
            fields = {**fields, "thinking.budget_tokens": True}
        switched_off = body.thinking is not None and body.thinking.type == "disabled"
        if switched_off and "switched_thinking" not in self._client.abilities:
            known -= {"thinking"}
        return self._client.unread(fields, known)
