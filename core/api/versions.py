"""API integers: one per kind, bumped for breaking changes only.

A plugin states the integer it was written for; core accepts the current one and the one before, unless that was
dropped.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

API_VERSIONS: dict[str, int] = {
    "core.platforms": 2,
    "core.attention_backends": 2,
    "core.quantization": 2,
    "core.models": 2,
    "core.weight_transfer": 1,
    "core.tool_parsers": 1,
    "core.kv_connectors": 2,
    "core.weight_stores": 1,
    "core.weight_loaders": 1,
    "core.model_sources": 1,
    "core.executors": 1,
    "core.schedulers": 1,
    "core.kernels": 1,
    "core.structured_output": 1,
    "core.drafters": 2,
    "core.participants": 1,
    "core.logits": 1,
    "core.stat_sinks": 1,
    "core.io_processors": 1,
    "core.routes": 1,
    "core.commands": 1,
    "core.tool_servers": 1,
}
"""API integer of every kind but hooks, by entry-point group."""

HOOKS_API = 1
"""API integer of the hook specifications (`core.plugins`)."""

STABLE = frozenset(
    {
        "core.platforms",
        "core.attention_backends",
        "core.quantization",
        "core.models",
        "core.weight_transfer",
        "core.tool_parsers",
        "core.kv_connectors",
    }
)
"""Kinds that break only with a new integer; the others are provisional and may break with a note in one release."""

_WINDOW = 1
# The newest integer that is not accepted although it may be the one before. No core ever called drafters of API 1, and
# nobody had published against API 1 of the others when a layer became what it is.
_DROPPED = {
    "core.drafters": 1,
    "core.platforms": 1,
    "core.attention_backends": 1,
    "core.quantization": 1,
    "core.models": 1,
    "core.kv_connectors": 1,
}


def oldest(group: str) -> int:
    """Return the oldest integer of `group` that is accepted: the one before the current, unless it was dropped."""
    return max(1, versions()[group].api - _WINDOW, _DROPPED.get(group, 0) + 1)


def accepts(group: str, api: int) -> bool:
    """Say whether a plugin of `group` written for integer `api` can be used by this core."""
    return oldest(group) <= api <= API_VERSIONS[group]


class ApiVersion(NamedTuple):
    """A kind's integer and how firm it is.

    Attributes:
        api: The integer.
        tier: `stable` breaks with a new integer only, `provisional` may with a note in one release.
    """

    api: int
    tier: Literal["stable", "provisional"]


def versions() -> dict[str, ApiVersion]:
    """Return the API integer and tier of every kind, hooks included, by entry-point group."""
    table = {**API_VERSIONS, "core.plugins": HOOKS_API}
    return {group: ApiVersion(api, "stable" if group in STABLE else "provisional") for group, api in table.items()}
