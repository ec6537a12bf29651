"""The pooling routes, and the refusal of routes that do not fit the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from core.frontend.pooling import does_not_generate
from core.server.pooling.cohere import CohereRoute
from core.server.pooling.protocol import (
    ClassifyBody,
    CohereBody,
    EmbeddingBody,
    PoolingBody,
    RerankBody,
    ScoreBody,
)
from core.server.pooling.run import pooler_of
from core.server.pooling.scores import ScoreRoutes
from core.server.pooling.vectors import VectorRoutes
from core.server.state import ServerState

Endpoint = Callable[[Request], Awaitable[Response]]
Route = tuple[str, str, Endpoint, type[BaseModel] | None]


def pooling_routes(state: ServerState) -> list[Route]:
    """Return method, path, endpoint and body of each route. With a model that generates all of them answer 400."""
    vectors, scores = VectorRoutes(state), ScoreRoutes(state)
    return [
        ("POST", "/v1/embeddings", vectors.embeddings, EmbeddingBody),
        ("POST", "/v2/embed", CohereRoute(state).__call__, CohereBody),
        ("POST", "/pooling", vectors.pooling, PoolingBody),
        ("POST", "/classify", vectors.classify, ClassifyBody),
        *(("POST", path, scores.score, ScoreBody) for path in ("/score", "/v1/score")),
        *(("POST", path, scores.rerank, RerankBody) for path in ("/rerank", "/v1/rerank", "/v2/rerank")),
    ]


def generating(state: ServerState, routes: Iterable[Route]) -> list[Route]:
    """Return routes that generate as they are, or, if the model gives vectors instead, ones that say so with 400."""
    pooler = pooler_of(state)
    if pooler is None:
        return list(routes)

    async def refuse(request: Request) -> Response:
        raise does_not_generate(pooler.name, pooler.shape)

    return [(method, path, refuse, body) for method, path, _, body in routes]
