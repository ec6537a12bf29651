"""`POST /v2/chat`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acme_core_cohere.ask import chat_request
from acme_core_cohere.bodies import ChatBody
from acme_core_cohere.events import ChatJob
from core.api import Dialect, EngineClient, Reply, RequestError, RouteRegistry, RouteRequest


class CohereRoutes:
    """The route and the engine that it asks."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._client: EngineClient

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the route."""
        registry.dialect(Dialect(_error))
        registry.add("POST", "/v2/chat", self.chat, summary="Cohere's chat", body=ChatBody, generates=True)

    def bind(self, client: EngineClient) -> None:
        """Requests come from now on."""
        self._client = client

    async def chat(self, request: RouteRequest) -> Reply:
        """Answer a conversation."""
        body, fields = await request.read(ChatBody)
        headers = self._client.unread(fields, ChatBody.model_fields)
        answer = await self._client.open(chat_request(body), prefix="chat")
        return Reply(ChatJob(answer), bool(body.stream), headers)


def _error(error: RequestError) -> dict[str, str]:
    return {"message": error.message}
