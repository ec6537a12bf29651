"""Hook modules: hooks that exist, answers of the right kind, no change of what they read, no delay."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from core.api.attention import AttentionSite
from core.api.errors import CoreError
from core.api.forms import PLAIN
from core.api.patches import Problem
from core.api.products import ProductPlace
from core.api.quantization import LayerSite
from core.api.requests import Caller, RequestDraft, RequestPatch
from core.api.sampling_params import SamplingParams
from core.config.fields import without_secrets
from core.config.resolved import Options
from core.plugins.contracts import PRODUCT
from core.plugins.handed import ATTENTION_LAYER, Handed
from core.plugins.hooks import Hooks
from core.plugins.options import settled_options
from core_testing.conformance.outcome import Failed, Level, checks, require
from core_testing.conformance.subject import Subject

BUDGET = 0.001
"""Seconds that a hook's median call may take."""

_CALLS = 21

_FACTS: dict[str, Any] = {
    "platform": "cpu",
    "device": "cpu",
    "capability": [],
    "probe": {"cores": 2},
    "model": "tiny",
    "architecture": "LlamaForCausalLM",
    "quantization": "none",
    "shape": {},
}
_PROBLEM = Problem(level="error", code="KIT-1", message="made up by the kit")


def hooks_fit_the_specifications(subject: Subject) -> None:
    """Every hook that is marked exists, and asks for parameters that it has."""
    failures = Hooks([subject.entry], options=partial(settled_options, given={})).failures
    require(not failures, "; ".join(failure.reason for failure in failures))


def hooks_answer_in_kind(subject: Subject) -> None:
    """Hooks give patches, problems, one of the candidates, or nothing, and do not raise."""
    for name, call in _calls(subject).items():
        try:
            call()
        except CoreError as error:
            raise Failed(f"{name}: {error.message}") from error
    if _hooks(subject).has("core_layer"):
        _require_layers(_hooks(subject))


def hooks_change_nothing_they_read(subject: Subject) -> None:
    """Objects that a hook is given are as before when it returns."""
    config, facts = _config(), json.loads(json.dumps(_FACTS))
    hooks = _hooks(subject)
    hooks.configure(config, facts)
    hooks.validate(config)
    hooks.select("core.executors", ["a", "b"], facts)
    draft = _draft()
    hooks.request(draft, _patched)
    require(draft == _draft(), "a hook changed a request instead of returning a RequestPatch")
    require(config == _config(), "a hook changed the configuration instead of proposing a ConfigPatch")
    require(facts == _FACTS, "a hook changed the facts it was given")


def hooks_are_quick(subject: Subject) -> None:
    """The median call of each hook takes at most a millisecond."""
    for name, call in _calls(subject).items():
        seconds = statistics.median(_time(call) for _ in range(_CALLS))
        require(seconds <= BUDGET, f"{name} takes {seconds * 1000:.1f} ms, allowed {BUDGET * 1000:g}")


def _calls(subject: Subject) -> dict[str, Callable[[], object]]:
    hooks, config = _hooks(subject), _config()
    return {
        "core_configure": lambda: hooks.configure(config, _FACTS),
        "core_validate": lambda: hooks.validate(config),
        "core_select": lambda: hooks.select("core.executors", ["a", "b"], {}),
        "core_engine_event": lambda: hooks.engine_event("ready", {}),
        "core_waive": lambda: hooks.waive(_PROBLEM),
        "core_request": lambda: hooks.request(_draft(), _patched),
    }


def _require_layers(hooks: Hooks) -> None:
    """Require that what wraps or replaces a layer has everything that a layer has."""
    import torch

    from core.ops.products import ReferenceProduct
    from core_testing.conformance.tools.plain import PlainAttentionLayer

    site = LayerSite("linear", "model.layers.0.mlp.up_proj", 8, (("", 4),))
    product = ReferenceProduct(ProductPlace(site, (PLAIN,), torch.device("cpu"), torch.float32), {})
    place = AttentionSite(0, 4, 2, 8, 0.5)
    handed = Handed("core_layer")
    for at, layer, contract in (
        (site, product, PRODUCT),
        (place, PlainAttentionLayer(place, 4), ATTENTION_LAYER),
    ):
        try:
            handed.fit("it", hooks.layer(at, layer), contract)
        except CoreError as error:
            raise Failed(f"core_layer: {error.message}") from error


def _draft() -> RequestDraft:
    return RequestDraft([3, 4, 5], SamplingParams(temperature=0.5, max_tokens=9), 0, Caller("somebody"))


def _patched(draft: RequestDraft, patch: RequestPatch) -> RequestDraft:
    """Change a request as the front end does. Raises what an impossible change raises."""
    params = draft.params
    if patch.params and isinstance(params, SamplingParams):
        params = params.replace(**patch.params)
    return replace(draft, params=params)


def _hooks(subject: Subject) -> Hooks:
    hooks = Hooks([subject.entry], options=partial(settled_options, given={}))
    for failure in hooks.failures:
        raise Failed(failure.reason)
    return hooks


def _config() -> dict[str, Any]:
    return without_secrets(Options())


def _time(call: Callable[[], object]) -> float:
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


CHECKS = (
    *checks(hooks_fit_the_specifications, level=Level.L0),
    *checks(hooks_answer_in_kind, hooks_change_nothing_they_read, hooks_are_quick),
)
