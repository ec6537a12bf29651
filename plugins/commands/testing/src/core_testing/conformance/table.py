"""Which checks a kind of plugin has to pass."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from core.plugins.kinds import HOOKS_GROUP
from core_testing.conformance.outcome import Check

EVERY = ("packaging", "manifest", "spawn")
"""Areas of every kind."""

AREAS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "core.platforms": ("platforms",),
        "core.attention_backends": (
            *("attention", "rotations", "latents", "picks", "compressed", "features", "encoding", "replays"),
        ),
        "core.quantization": ("quantization", "updates", "stored_experts", "slices"),
        "core.models": ("models", "encoders"),
        "core.tool_parsers": ("parsers",),
        "core.kv_connectors": ("connectors",),
        "core.weight_transfer": ("transfer",),
        "core.weight_stores": ("weight_stores",),
        "core.schedulers": ("schedulers",),
        "core.executors": ("executors",),
        "core.weight_loaders": ("loaders",),
        "core.model_sources": ("sources",),
        "core.kernels": ("kernels", "products"),
        "core.logits": ("logits",),
        "core.structured_output": ("grammars",),
        "core.drafters": ("drafters",),
        "core.participants": ("participants",),
        "core.stat_sinks": ("sinks",),
        "core.io_processors": ("io_processors",),
        "core.routes": ("routes",),
        "core.commands": ("commands",),
        "core.tool_servers": ("tool_servers",),
        HOOKS_GROUP: ("hooks",),
    }
)
"""Further areas of each group; each is a module of `core_testing.conformance.areas` with its `CHECKS`."""


def checks_of(area: str) -> tuple[Check, ...]:
    """Return the checks of an area, in order. Imports the area, and with it what its checks need (often torch)."""
    checks: tuple[Check, ...] = import_module(f"core_testing.conformance.areas.{area}").CHECKS
    return checks


def checks_for(group: str) -> list[Check]:
    """Return every check for plugins of `group`; a group without checks of its own has those of every kind."""
    areas = (*EVERY, *AREAS.get(group, ()))
    return [check for area in areas for check in checks_of(area) if _fits(check, group)]


def _fits(check: Check, group: str) -> bool:
    # Hook modules have no descriptor, options or implementation.
    return group != HOOKS_GROUP or not check.name.startswith(("descriptor_", "options_", "api_", "entry_point_"))
