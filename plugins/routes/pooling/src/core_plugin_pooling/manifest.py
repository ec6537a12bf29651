"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import RouteSpec

POOLING = RouteSpec(
    name="pooling",
    impl="core_plugin_pooling.routes:PoolingRoutes",
    api=1,
    summary="Embeddings, classes, scores and ranked documents, from models that give vectors",
    mounts=(
        "/v1/embeddings",
        "/v2/embed",
        "/pooling",
        "/classify",
        "/score",
        "/v1/score",
        "/rerank",
        "/v1/rerank",
        "/v2/rerank",
    ),
    automatic=True,
)
