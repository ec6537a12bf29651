"""The routes and their options, as data."""

from __future__ import annotations

from core.api import OptionSection, RouteSpec

MODERATION = RouteSpec(
    name="moderation",
    impl="acme_core_moderation.routes:ModerationRoutes",
    api=1,
    summary="POST /v1/moderations, and no answer to texts that a moderator objects to",
    mounts=("/v1/moderations",),
    automatic=True,
    settings=("moderation_limit", "moderation_texts"),
)

OPTIONS = OptionSection(
    name="moderation",
    impl="acme_core_moderation.options:ModerationOptions",
    api=1,
    summary="Texts that moderators look at before the model does",
)
