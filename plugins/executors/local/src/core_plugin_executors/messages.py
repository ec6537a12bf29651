"""Messages between the subprocess executor and its child."""

from __future__ import annotations

from typing import Any

import msgspec

from core.api import CoreError, EngineError, StepPlan, StepResult, WorkerInfo


class Launch(msgspec.Struct, tag="launch", array_like=True):
    """Run a step; answered by `Stepped` or `Failed`."""

    plan: StepPlan


class Late(msgspec.Struct, tag="late", array_like=True):
    """Late parts of a launched step, by participant; answers nothing."""

    number: int
    parts: dict[str, Any]


class Call(msgspec.Struct, tag="call", array_like=True):
    """Call a worker method; answered by `Returned` or `Failed`."""

    method: str
    args: list[Any]


class Stop(msgspec.Struct, tag="stop", array_like=True):
    """Close the worker and exit."""


class Started(msgspec.Struct, tag="started", array_like=True):
    """The worker is ready."""

    info: WorkerInfo


class Loading(msgspec.Struct, tag="loading", array_like=True):
    """Progress of loading weights, in bytes; answers nothing."""

    done: int
    total: int


class Stepped(msgspec.Struct, tag="stepped", array_like=True):
    """A step's result."""

    result: StepResult


class Returned(msgspec.Struct, tag="returned", array_like=True):
    """A call's value."""

    value: Any


class Failed(msgspec.Struct, tag="failed", array_like=True):
    """The error that a request raised; `error` is `CoreError.to_dict()`."""

    error: dict[str, str]


ToChild = Launch | Late | Call | Stop
FromChild = Started | Loading | Stepped | Returned | Failed


def describe(error: Exception, doing: str) -> dict[str, str]:
    """Return the fields of `error` for the other process; one that is not core's own becomes a `CORE-E132`."""
    if not isinstance(error, CoreError):
        text = f"The worker failed in {doing}: {type(error).__name__}: {error}."
        error = EngineError("CORE-E132", text, hint="The worker's traceback is on standard error.")
    return error.to_dict()
