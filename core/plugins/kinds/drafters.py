"""The kind `core.drafters`: guesses of next tokens."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

DRAFTER = Kind(
    group="core.drafters",
    label="drafter",
    summary="guesses of next tokens",
    descriptor="core.api.descriptors:DrafterSpec",
    api=2,
    oldest=2,  # no core ever called drafters of API 1
    option="drafter",
    help="Source of draft tokens; none by default.",
    contracts={"impl": Contract("core.api.drafters:Drafter")},
    torch_free=("impl",),
    checks=("drafters",),
)
