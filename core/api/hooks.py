"""Hook specifications: moments at which zero or more plugins may act.

A hook plugin is a module (entry-point group `core.plugins`) with functions marked `@hookimpl`. An implementation
may name any subset of a hook's parameters. No hook runs per layer or per token.

Every hook's `options` are the plugin's own, as the pydantic model says that the module names in `__core_options__`
(`package.module:Model`); a hook wrapper sees those of the plugin that it wraps.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from core.api.attention import (
        AttentionLayer,
        AttentionSite,
        CompressedLayer,
        CompressedSite,
        LatentLayer,
        LatentSite,
        Picker,
        PickSite,
    )
    from core.api.deprecation import Renamed
    from core.api.models import Model
    from core.api.patches import ConfigPatch, Finding, Problem, Waiver
    from core.api.products import Product
    from core.api.quantization import LayerSite
    from core.api.requests import Reject, RequestDraft, RequestPatch

hookspec = pluggy.HookspecMarker("core")
hookimpl = pluggy.HookimplMarker("core")
"""Decorator that marks a function of a hook plugin as the implementation of the hook of its name."""

RENAMED_HOOKS: Mapping[str, Renamed] = types.MappingProxyType({})
"""Old name of a hook -> its new one; plugins that implement the old one are called, and warned."""


@hookspec
def core_configure(  # type: ignore[empty-body]
    config: Mapping[str, Any], facts: Mapping[str, Any], options: Mapping[str, Any]
) -> Iterable[ConfigPatch]:
    """Propose changes to the configuration, after flags, environment and file were read.

    Args:
        config: Nested values as resolved so far; read only.
        facts: What is known of the machine (`platform`, `device`).
    """


@hookspec
def core_validate(config: Mapping[str, Any], options: Mapping[str, Any]) -> Iterable[Problem]:  # type: ignore[empty-body]
    """Report problems of the final configuration; an error stops the start."""


@hookspec(firstresult=True)
def core_select(
    group: str, candidates: Sequence[str], request: Mapping[str, Any], options: Mapping[str, Any]
) -> str | None:
    """Choose one of the `candidates` (names that passed every check, best score first), or None for core's choice.

    Never asked when the user chose explicitly.
    """


@hookspec
def core_engine_event(event: str, details: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Observe `started`, `ready`, `draining`, `stopped`, `failed`, `weights_updated`. Errors are logged, not raised."""


@hookspec(firstresult=True)
def core_waive(problem: Problem, options: Mapping[str, Any]) -> Waiver | None:
    """Downgrade an error of the configuration that this plugin can handle; the reason is shown at every start."""


@hookspec
def core_layer(
    site: LayerSite | AttentionSite | LatentSite | PickSite | CompressedSite,
    layer: Product | AttentionLayer | LatentLayer | Picker | CompressedLayer,
    options: Mapping[str, Any],
) -> Product | AttentionLayer | LatentLayer | Picker | CompressedLayer | None:
    """Wrap or replace what the layer builder hands out for one place of the model; None leaves it as it is.

    Asked in the worker while the model is built. Several plugins may wrap the same layer; each sees the answer of the
    one before.
    """


@hookspec
def core_model_loaded(model: Model, info: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """The model's weights are in place, in the worker: at the start, and again after every update.

    Args:
        info: `architecture`, `version` (of the weights), `num_parameters`, `device`.
    """


@hookspec
def core_request(request: RequestDraft, options: Mapping[str, Any]) -> RequestPatch | Reject | None:
    """Change or refuse a request in the front end, before the engine sees it. Asked once per request.

    Several plugins may change a request; each sees the changes of the one before. A refusal ends the asking.
    """


@hookspec
def core_doctor(options: Mapping[str, Any]) -> Iterable[Finding]:  # type: ignore[empty-body]
    """Report what is right and wrong with this machine, when the user asks for it."""
