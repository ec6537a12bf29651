"""Random numbers: one uniform number per sampled token."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_MASK = 2**64 - 1


class Uniforms:
    """Numbers in [0, 1): from one shared generator, or for a seeded row from its seed and output position alone.

    A seeded row's numbers depend on nothing else, so neither the batch nor a preemption changes its text.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._generator = torch.Generator(device).manual_seed(seed)
        self._device = device

    def draw(self, seeds: np.ndarray, output_counts: np.ndarray, seeded: np.ndarray) -> Tensor:
        """Return `(n,)` float64.

        Args:
            seeds: `(n,)` int64, read where `seeded (n,)` is true.
            output_counts: `(n,)` position of the token in its row's output.
        """
        numbers = torch.rand(len(seeds), dtype=torch.float64, device=self._device, generator=self._generator)
        places = np.flatnonzero(seeded)
        if len(places):
            own = [keyed_uniform(int(seeds[i]), int(output_counts[i])) for i in places]
            numbers[torch.from_numpy(places).to(self._device)] = torch.tensor(
                own, dtype=torch.float64, device=self._device
            )
        return numbers


def keyed_uniform(seed: int, index: int) -> float:
    """Return a number in [0, 1) that is a fixed function of `seed` and `index`."""
    return (_mix(_mix(seed & _MASK) ^ _mix(~index & _MASK)) >> 12) * 2.0**-52


def _mix(value: int) -> int:
    """Scatter 64 bits; the finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
