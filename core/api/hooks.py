"""Hook specifications: moments at which zero or more plugins may act.

A hook plugin is a module (entry-point group `core.plugins`) with functions marked `@hookimpl`. An implementation
may name any subset of a hook's parameters. No hook runs per layer or per token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from core.api.patches import ConfigPatch, Problem

hookspec = pluggy.HookspecMarker("core")
hookimpl = pluggy.HookimplMarker("core")


@hookspec
def core_configure(config: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterable[ConfigPatch]:  # type: ignore[empty-body]
    """Propose changes to the configuration, after flags, environment and file were read.

    Args:
        config: Nested values as resolved so far; read only.
        facts: What is known of the machine (`platform`, `device`).
    """


@hookspec
def core_validate(config: Mapping[str, Any]) -> Iterable[Problem]:  # type: ignore[empty-body]
    """Report problems of the final configuration; an error stops the start."""


@hookspec(firstresult=True)
def core_select(group: str, candidates: Sequence[str], request: Mapping[str, Any]) -> str | None:
    """Choose one of the `candidates` (names that passed every check, best score first), or None for core's choice.

    Never asked when the user chose explicitly.
    """


@hookspec
def core_engine_event(event: str, details: Mapping[str, Any]) -> None:
    """Observe `started`, `ready`, `draining`, `stopped`, `failed`, `weights_updated`. Errors are logged, not raised."""
