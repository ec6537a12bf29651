"""A moment of a plugin's participant: what it answers is checked, and what it raises is accounted for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from core.api.errors import PluginError
from core.api.participants import Participant, StagedRequest, Stat
from core.api.steps import StepPlan, StepResult
from core.engine.parts import require_kind
from core.plugins.drivers import describe
from core.plugins.faults import Faults

FALLBACKS: Mapping[str, Any] = {"supply": 0, "place": False, "pending": False, "settle": {}, "calls": {}, "stats": {}}
"""Substitute for the answer of a plugin's moment that raised; None for all others."""

Instead = Callable[..., Any]
"""Fallback of a moment that failed: called with the `PluginError` and the moment's arguments."""


def guarded_moment(
    method: Callable[..., Any], moment: str, faults: Faults, instead: Instead | None = None
) -> Callable[..., Any]:
    """Return a moment of a plugin whose exceptions are accounted for; what is about one request ends that alone.

    Args:
        instead: Called with what was raised, as CORE-P108, and the arguments, for the answer; None: see `FALLBACKS`.
    """
    fallback = FALLBACKS.get(moment)
    checked: Callable[..., Any] = _CHECKED.get(moment, _as_it_is)

    def called(*arguments: Any) -> Any:
        try:
            return checked(method(*arguments), *arguments)
        except Exception as error:
            if moment in ("arrive", "admit"):
                if isinstance(error, ValueError):
                    raise
                faults.raised(f"{moment}()", error)
                raise ValueError(f"CORE-P108 {faults.owner}: {moment}() raised {describe(error)}") from error
            faults.raised(f"{moment}()", error)
            told = PluginError("CORE-P108", f"{faults.owner}: {moment}() raised {describe(error)}.")
            if moment == "late":
                raise told from error
            return fallback if instead is None else instead(told, *arguments)

    return called


def late_part(participant: Participant, method: Callable[..., Any], plan: StepPlan, alive: np.ndarray) -> Any:
    """Return a late part. Raises `EngineError` CORE-E184 for one that is not of its type."""
    part = method(plan, alive)
    if part is not None:
        require_kind(part, participant.parts.late, participant.name)
    return part


def finished_part(participant: Participant, method: Callable[..., Any], request: StagedRequest) -> Any:
    """Return the part that goes with a request's end. Raises `EngineError` CORE-E184 as `late_part`."""
    part = method(request)
    if part is not None:
        require_kind(part, participant.parts.finished, participant.name)
    return part


def spoil(error: PluginError, plan: StepPlan, result: StepResult) -> None:
    """Let every row of a step fail that a constraining participant could not read."""
    result.errors.update(dict.fromkeys(range(len(plan.rows)), f"{error.code} {error.message}"))


def end_all(error: PluginError, requests: Sequence[StagedRequest | None], tokens: np.ndarray) -> Mapping[int, str]:
    """Return the end of every request whose token a constraining participant does not know."""
    there = [index for index, request in enumerate(requests) if request is not None]
    return dict.fromkeys(there, f"{error.code} {error.message}")


def _as_it_is(value: Any, *_: Any) -> Any:
    return value


def _refusals(value: Any, requests: Sequence[StagedRequest | None], tokens: np.ndarray) -> dict[int, str]:
    refusals = {operator.index(index): str(error) for index, error in value.items()}
    if not all(0 <= index < len(requests) for index in refusals):
        raise IndexError(f"it names places outside the {len(requests)} that it was told of")
    return refusals


def _bounds(value: Any, rows: np.ndarray, room: np.ndarray) -> np.ndarray | None:
    if value is None:
        return None
    bounds = np.asarray(value)
    if bounds.shape != rows.shape or bounds.dtype.kind not in "iu":
        raise ValueError(f"its answer is {bounds.dtype} {bounds.shape}, not {len(rows)} integers")
    clipped: np.ndarray = np.clip(bounds, 0, room)
    return clipped


def _figure(value: Any) -> Stat:
    return [counted(one) for one in value] if isinstance(value, list | tuple) else counted(value)


def counted(value: object) -> int:
    """Return a figure. Raises `TypeError` for what is no integer, `OverflowError` for one that no message can carry."""
    number = operator.index(value)  # type: ignore[arg-type]
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"a figure has {number.bit_length()} bits, more than 64")
    return number


_CHECKED: Mapping[str, Callable[..., Any]] = {
    "admit": lambda value, *_: bool(value),
    "supply": lambda value, *_: operator.index(value),
    "place": lambda value, *_: bool(value),
    "pending": lambda value, *_: bool(value),
    "drafts": _bounds,
    "settle": _refusals,
    "stats": lambda value, *_: {str(name): _figure(one) for name, one in value.items()},
}
"""Conversion of a plugin's answer, so that a wrong one is a fault here and not an error elsewhere."""
