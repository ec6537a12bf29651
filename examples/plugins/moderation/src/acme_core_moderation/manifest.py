"""The routes, as data."""

from __future__ import annotations

from core.api import RouteSpec

MODERATION = RouteSpec(
    name="moderation",
    impl="acme_core_moderation.routes:ModerationRoutes",
    api=1,
    summary="POST /v1/moderations, and no answer to texts that a moderator objects to",
    mounts=("/v1/moderations",),
    automatic=True,
)
