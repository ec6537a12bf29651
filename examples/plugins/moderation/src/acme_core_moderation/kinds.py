"""The kind `acme.moderators`, as data."""

from __future__ import annotations

from core.api import Contract, Kind

MODERATORS = Kind(
    group="acme.moderators",
    label="moderator",
    summary="objections to texts",
    descriptor="acme_core_moderation.spec:ModeratorSpec",
    option="moderator",
    help="Moderators that look at every text before the model answers it; none by default.",
    many=True,
    contracts={
        "impl": Contract(
            "acme_core_moderation.contract:Moderator", optional=("acme_core_moderation.contract:Explains",)
        )
    },
    torch_free=("impl",),
    template="acme_core_moderation:templates",
    checks=("acme_core_moderation.checks",),
)
