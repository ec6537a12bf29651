"""`POST /openai/deployments/{deployment}/chat/completions`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from acme_core_azure.ask import chat_request
from acme_core_azure.bodies import ChatBody
from acme_core_azure.chunks import ChatJob
from core.api import Dialect, EngineClient, Reply, RequestError, RouteRegistry, RouteRequest

CHAT = "/openai/deployments/{deployment}/chat/completions"
_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(-preview)?")


class AzureRoutes:
    """The route, the engine that it asks, and the names that its model has."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._deployments = frozenset(options.get("deployments", ()))
        self._client: EngineClient

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the route."""
        registry.dialect(Dialect(_error, end=b"data: [DONE]\n\n"))
        registry.add("POST", CHAT, self.chat, summary="A deployment's chat completions", body=ChatBody, generates=True)

    def bind(self, client: EngineClient) -> None:
        """Requests come from now on."""
        self._client = client
        self._deployments = self._deployments or frozenset({client.model_name.rpartition("/")[2]})

    async def chat(self, request: RouteRequest) -> Reply:
        """Answer a conversation."""
        self._check(request)
        fields = await request.json()
        fields.pop("model", None)  # the path says which model is asked
        body = ChatBody.model_validate(fields)
        ChatBody.refuse_unsupported(fields)
        headers = self._client.unread(fields, ChatBody.model_fields)
        answer = await self._client.open(chat_request(body), prefix="chatcmpl")
        usage = body.stream_options is not None and body.stream_options.include_usage
        return Reply(ChatJob(answer, self._client.model_name, usage=usage), bool(body.stream), headers)

    def _check(self, request: RouteRequest) -> None:
        """Refuse a deployment that there is not, and clients that do not say which version of the API they speak."""
        if not _VERSION.fullmatch(request.query.get("api-version", "")):
            message = "Resource not found: the query needs an api-version such as 2024-10-21."
            raise RequestError(message, code="404", status=404)
        if request.path_params["deployment"] not in self._deployments:
            message = "The API deployment for this resource does not exist."
            raise RequestError(message, code="DeploymentNotFound", status=404)


def _error(error: RequestError) -> dict[str, Any]:
    return {"error": {"code": error.code or str(error.status), "message": error.message, "param": error.param}}
