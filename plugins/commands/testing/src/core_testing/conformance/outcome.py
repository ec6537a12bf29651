"""Checks, their levels and their outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

from core.api.errors import CoreError

if TYPE_CHECKING:
    from core_testing.conformance.subject import Subject

Status = Literal["passed", "failed", "skipped", "unavailable"]


class Level(IntEnum):
    """How far a plugin was shown to be correct; each level includes those below it."""

    L0 = 0
    """It installs: metadata, manifest and imports are sound."""
    L1 = 1
    """It is correct on the CPU, or is not about a device."""
    L2 = 2
    """It is correct on the devices it declares."""
    L3 = 3
    """It is faster than the reference driver on a device it declares."""


class Failed(Exception):  # noqa: N818 - an outcome, not a mishap
    """The plugin does not conform: what was expected, what happened, and for which input."""


class NotApplicable(Exception):  # noqa: N818
    """The plugin declares nothing that this check is about."""


class Unavailable(Exception):  # noqa: N818
    """The check needs what is not here (a device, a sample): the plugin's level stays below the check's."""


def require(condition: object, message: str) -> None:
    """Raise `Failed` with `message` unless `condition` holds."""
    if not condition:
        raise Failed(message)


def require_core_error(
    action: Callable[..., object], *arguments: object, what: str, kind: type[CoreError] = CoreError
) -> None:
    """Raise `Failed` unless `action(*arguments)` raises a `kind`; `what` says what was tried."""
    try:
        action(*arguments)
    except kind:
        return
    except Exception as error:
        raise Failed(f"{what} raised {type(error).__name__} ({error}), not a {kind.__name__}") from error
    raise Failed(f"{what} raised nothing, where a {kind.__name__} is due")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that every plugin of a kind must do.

    Attributes:
        function: Raises if the subject does not; its name is the check's, its docstring says what it asks.
        level: The level that needs it.
        on_device: Whether it is run again, for L2, on every accelerator that the plugin declares.
    """

    function: Callable[[Subject], None]
    level: Level = Level.L1
    on_device: bool = False

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @property
    def area(self) -> str:
        """The area that it belongs to: the last part of its function's module."""
        return self.function.__module__.rpartition(".")[2]

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]


def checks(
    *functions: Callable[[Subject], None], level: Level = Level.L1, on_device: bool = False
) -> tuple[Check, ...]:
    """Return functions as checks of one level, in their order."""
    return tuple(Check(function, level, on_device) for function in functions)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One check of one plugin.

    Attributes:
        check: Its name, with `@device` if it was run on an accelerator.
        message: Why it failed, or did not run.
        area: Of the check.
    """

    check: str
    level: Level
    status: Status
    message: str = ""
    seconds: float = 0.0
    area: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "check": self.check,
            "area": self.area,
            "level": self.level.name,
            "status": self.status,
            "message": self.message,
            "seconds": round(self.seconds, 3),
        }
