"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import RouteSpec

COHERE = RouteSpec(
    name="cohere",
    impl="acme_core_cohere.routes:CohereRoutes",
    api=1,
    summary="Cohere's API: POST /v2/chat",
    mounts=("/v2/chat",),
)
