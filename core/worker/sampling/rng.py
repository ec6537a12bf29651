"""Random numbers: one uniform number per sampled token."""

from __future__ import annotations

import numpy as np

_MASK = 2**64 - 1
_STEP, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_SHIFTS = tuple(np.uint64(n) for n in (30, 27, 31))
_DROPPED_BITS = np.uint64(12)


class Uniforms:
    """Numbers in [0, 1): from one shared sequence, or for a seeded row from its seed and output position alone.

    A seeded row's numbers depend on nothing else, so neither the batch nor a preemption changes its text. They are made
    on the host, so that they are the same on every device.
    """

    def __init__(self, seed: int) -> None:
        # Not numpy.random, whose import is 5 MiB; another key than that of a row with the same seed.
        self._key, self._drawn = _mix(np.array([~seed & _MASK], dtype=np.uint64)).view(np.int64), 0

    def draw(self, seeds: np.ndarray, output_counts: np.ndarray, seeded: np.ndarray) -> np.ndarray:
        """Return `(n,)` float64.

        Args:
            seeds: `(n,)` int64, read where `seeded (n,)` is true.
            output_counts: `(n,)` int64, position of the token in its row's output.
        """
        places = np.arange(self._drawn, self._drawn + len(seeds))
        self._drawn += len(seeds)
        numbers = keyed_uniforms(self._key, places)
        if seeded.any():
            numbers[seeded] = keyed_uniforms(seeds[seeded], output_counts[seeded])
        return numbers


def keyed_uniforms(seeds: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return numbers in [0, 1) that are a fixed function of `seeds`, `(n,)` or one, and `indices (n,)`, all int64."""
    mixed = _mix(_mix(seeds.view(np.uint64)) ^ _mix((~indices).view(np.uint64)))
    numbers: np.ndarray = (mixed >> _DROPPED_BITS) * 2.0**-52
    return numbers


def _mix(value: np.ndarray) -> np.ndarray:
    """Scatter 64 bits, wrapping around; the finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    value = value + _STEP
    value = (value ^ (value >> _SHIFTS[0])) * _FIRST
    value = (value ^ (value >> _SHIFTS[1])) * _SECOND
    mixed: np.ndarray = value ^ (value >> _SHIFTS[2])
    return mixed
