"""The pooling routes, and the refusal of routes that do not fit the model."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from core.frontend.pooling.model import does_not_generate
from core.server.pooling.cohere import cohere_embed
from core.server.pooling.protocol import (
    ClassifyBody,
    CohereBody,
    EmbeddingBody,
    PoolingBody,
    RerankBody,
    ScoreBody,
)
from core.server.pooling.run import required_pooler
from core.server.pooling.scores import rerank, score
from core.server.pooling.vectors import classify, embeddings, pooling
from core.server.routes import Route
from core.server.state import ServerState

ROUTES = (
    Route("POST", "/v1/embeddings", embeddings, EmbeddingBody),
    Route("POST", "/v2/embed", cohere_embed, CohereBody),
    Route("POST", "/pooling", pooling, PoolingBody),
    Route("POST", "/classify", classify, ClassifyBody),
    *(Route("POST", path, score, ScoreBody) for path in ("/score", "/v1/score")),
    *(Route("POST", path, rerank, RerankBody) for path in ("/rerank", "/v1/rerank", "/v2/rerank")),
)
"""With a model that generates all of them answer 400."""


async def refuse_generation(state: ServerState, request: Request) -> Response:
    """Say with 400 that the model gives vectors: the endpoint of the routes that generate, where it pools."""
    pooler = required_pooler(state)
    raise does_not_generate(pooler.name, pooler.shape)
