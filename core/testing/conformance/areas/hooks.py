"""Hook modules: hooks that exist, answers of the right kind, no change of what they read, no delay."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from core.api.errors import CoreError
from core.config.resolved import Options
from core.plugins.hooks import Hooks
from core.testing.conformance.outcome import Check, Failed, Level, require
from core.testing.conformance.subject import Subject

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


def hooks_fit_the_specifications(subject: Subject) -> None:
    """Every hook that is marked exists, and asks for parameters that it has."""
    failures = Hooks([subject.entry]).failures
    require(not failures, "; ".join(failure.reason for failure in failures))


def hooks_answer_in_kind(subject: Subject) -> None:
    """Hooks give patches, problems, one of the candidates, or nothing, and do not raise."""
    for name, call in _calls(subject).items():
        try:
            call()
        except CoreError as error:
            raise Failed(f"{name}: {error.message}") from error


def hooks_change_nothing_they_read(subject: Subject) -> None:
    """What a hook is given is as before when it returns."""
    config, facts = _config(), json.loads(json.dumps(_FACTS))
    hooks = _hooks(subject)
    hooks.configure(config, facts)
    hooks.validate(config)
    hooks.select("core.executors", ["a", "b"], facts)
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
    }


def _hooks(subject: Subject) -> Hooks:
    hooks = Hooks([subject.entry])
    for failure in hooks.failures:
        raise Failed(failure.reason)
    return hooks


def _config() -> dict[str, Any]:
    view: dict[str, Any] = Options().model_dump(mode="json", exclude={"server": {"api_key"}})
    return view


def _time(call: Callable[[], object]) -> float:
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


CHECKS = (
    Check(hooks_fit_the_specifications, Level.L0),
    *(Check(function) for function in (hooks_answer_in_kind, hooks_change_nothing_they_read, hooks_are_quick)),
)
