"""API integers: one per kind, bumped for breaking changes only.

A plugin states the integer it was written for; core accepts the current one and the one before.
"""

from __future__ import annotations

API_VERSIONS: dict[str, int] = {
    "core.platforms": 1,
    "core.attention_backends": 1,
    "core.quantization": 1,
    "core.models": 1,
    "core.weight_transfer": 1,
    "core.tool_parsers": 1,
    "core.kv_connectors": 1,
    "core.weight_loaders": 1,
    "core.model_sources": 1,
    "core.executors": 1,
    "core.schedulers": 1,
}

WINDOW = 1
"""How many older integers are still accepted."""


def accepts(group: str, api: int) -> bool:
    """Say whether a plugin of `group` written for integer `api` can be used by this core."""
    current = API_VERSIONS[group]
    return current - WINDOW <= api <= current
