"""One attempt to compile a grammar: its limits, and the errors that end it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class OutOfTimeError(ValueError):
    """Compiling a grammar took longer than it may."""


class AbandonedError(ValueError):
    """Nobody waits for a grammar any more."""


class BrokenCompilerError(RuntimeError):
    """A backend failed where it should have compiled or refused a grammar, or could not be started."""


def _always() -> bool:
    return True


def _any_size(size: int) -> None:
    """Accept every size."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One attempt to compile a grammar.

    Attributes:
        seconds: Time that it gets.
        wanted: Says whether anybody still waits for it.
        room: Raises `ValueError` if a compiled grammar of so many bytes has no place in the engine's memory.
    """

    seconds: float
    wanted: Callable[[], bool] = _always
    room: Callable[[int], None] = _any_size
