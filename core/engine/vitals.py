"""Whether an engine process moves on: how long it has been silent, and how long its loop has not turned."""

from __future__ import annotations

from core.engine.messages import FromEngine, Pulse

SILENCE_SECONDS = 4.0
"""A process that sent nothing for so long, although it does every second, is stopped or holds its interpreter."""

WORK_SECONDS = 30.0
"""A step or a call may keep the loop for so long before it counts as stuck."""


class Vitals:
    """Signs of life of one process, told by whoever receives its messages.

    Time is counted in ticks of the receiver: while that is busy, or stopped itself, nobody is called silent.
    """

    def __init__(self) -> None:
        self._silent = 0.0
        self._pulse = Pulse(0.0)

    def seen(self, message: FromEngine) -> None:
        """A message came."""
        self._silent = 0.0
        self._pulse = message if isinstance(message, Pulse) else Pulse(0.0)

    def tick(self, seconds: float) -> None:
        """So much time has passed."""
        self._silent += seconds

    @property
    def still(self) -> float:
        """Seconds for which the loop is known not to have turned."""
        return self._silent + self._pulse.stalled

    @property
    def workers(self) -> bool:
        """Whether it is known to be a worker that does not move."""
        return not self._pulse.healthy

    @property
    def stuck(self) -> bool:
        """Whether that is longer than what it does explains, or a worker is stuck or gone."""
        if self._silent >= SILENCE_SECONDS or not self._pulse.healthy:
            return True
        return self.still >= (WORK_SECONDS if self._pulse.working else SILENCE_SECONDS)
