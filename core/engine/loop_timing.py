"""How long steps take, as far as it can be foretold from those before."""

from __future__ import annotations

from collections import deque

REMEMBERED = 4
"""Steps of a size that are remembered."""

MARGIN, LEAST_MARGIN = 0.25, 0.004
"""Share of an expected step, and seconds, by which it may end early without anybody noticing."""


class StepTimes:
    """Lengths of the latest steps, by size: sizes with the same number of bits are alike."""

    def __init__(self) -> None:
        self._seconds: dict[int, deque[float]] = {}

    def note(self, tokens: int, seconds: float) -> None:
        """A step of `tokens` tokens took so long."""
        self._seconds.setdefault(tokens.bit_length(), deque(maxlen=REMEMBERED)).append(seconds)

    def certain(self, tokens: int) -> float:
        """Return the seconds that a step of `tokens` tokens will last at least; 0 if none of its size is known.

        The shortest of the latest, less a margin: who relies on too much leaves the device idle, who relies on too
        little loses nothing that can be measured.
        """
        known = self._seconds.get(tokens.bit_length())
        if known is None:
            return 0.0
        shortest = min(known)
        return max(0.0, shortest - max(MARGIN * shortest, LEAST_MARGIN))
