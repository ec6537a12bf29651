"""The endpoints, and a first request for who starts the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api import EngineClient, RouteRegistry, RouteRequest, RouteResponse
from core_plugin_pooling import cohere, scores, vectors
from core_plugin_pooling.protocol import ClassifyBody, CohereBody, EmbeddingBody, PoolingBody, RerankBody, ScoreBody


class PoolingRoutes:
    """The routes and the engine that they ask. With a model that generates all of them answer 400."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._client: EngineClient

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the routes."""
        registry.add("POST", "/v1/embeddings", self.embeddings, body=EmbeddingBody)
        registry.add("POST", "/v2/embed", self.cohere_embed, body=CohereBody)
        registry.add("POST", "/pooling", self.pooling, body=PoolingBody)
        registry.add("POST", "/classify", self.classify, body=ClassifyBody)
        for path in ("/score", "/v1/score"):
            registry.add("POST", path, self.score, body=ScoreBody)
        for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
            registry.add("POST", path, self.rerank, body=RerankBody)
        registry.first_request(first_request)

    def bind(self, client: EngineClient) -> None:
        """Requests come from now on."""
        self._client = client

    async def embeddings(self, request: RouteRequest) -> RouteResponse:
        """Return embeddings in OpenAI's form."""
        return await vectors.embeddings(self._client, request)

    async def cohere_embed(self, request: RouteRequest) -> RouteResponse:
        """Return embeddings in Cohere's form."""
        return await cohere.embed(self._client, request)

    async def pooling(self, request: RouteRequest) -> RouteResponse:
        """Return what the model gives for a task, or what its I/O processor makes of `data`."""
        return await vectors.pooling(self._client, request)

    async def classify(self, request: RouteRequest) -> RouteResponse:
        """Return the most likely label, and the probability of each."""
        return await vectors.classify(self._client, request)

    async def score(self, request: RouteRequest) -> RouteResponse:
        """Return a score per pair."""
        return await scores.score(self._client, request)

    async def rerank(self, request: RouteRequest) -> RouteResponse:
        """Return the documents that suit a query, the best first."""
        return await scores.rerank(self._client, request)


def first_request(client: EngineClient) -> tuple[str, Mapping[str, Any]] | None:
    """Return path and fields of a first request to a model that pools; None for one that generates."""
    if "complete" in client.abilities:
        return None
    pooler = client.pooler()
    if not pooler.reads_text:
        return "/pooling", {"data": {}}  # its processor says what belongs there
    if "embed" in pooler.tasks:
        return "/v1/embeddings", {"input": "Hello!"}
    if "score" in pooler.tasks:
        return "/score", {"text_1": "Hello!", "text_2": ["Good morning!", "Goodbye!"]}
    return "/classify" if "classify" in pooler.tasks else "/pooling", {"input": "Hello!"}
