"""What compiling saves a step: the first steps are computed both ways."""

from __future__ import annotations

import logging
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.layers import StepInputs

_LOG = logging.getLogger(__name__)

Forward = Callable[["StepInputs"], "Tensor"]


class Comparison:
    """Times steps of one token a row both ways, and says what it found once it has enough.

    Args:
        steps: How many.
    """

    def __init__(self, steps: int) -> None:
        self._left = steps
        self._plain: list[float] = []
        self._compiled: list[float] = []

    def wants(self, step: StepInputs) -> bool:
        """Whether a step is to be computed both ways: writing the same keys and values again changes nothing."""
        return self._left > 0 and step.states is None

    def run(self, plain: Forward, compiled: Forward, step: StepInputs) -> Tensor:
        """Return what the compiled form gives."""
        compiled(step)  # compiled now, if ever
        self._plain.append(_seconds(plain, step)[0])
        seconds, hidden = _seconds(compiled, step)
        self._compiled.append(seconds)
        self._left -= 1
        if not self._left:
            before, now = median(self._plain) * 1e3, median(self._compiled) * 1e3
            _LOG.info("torch_compile: a step takes %.3f ms instead of %.3f ms (%.3f saved).", now, before, before - now)
        return hidden


def _seconds(forward: Forward, step: StepInputs) -> tuple[float, Tensor]:
    _settle(step)
    start = perf_counter()
    hidden = forward(step)
    _settle(step)
    return perf_counter() - start, hidden


def _settle(step: StepInputs) -> None:
    """Wait for the device, where it has a queue."""
    if step.token_ids.device.type != "cpu":
        torch.get_device_module(step.token_ids.device).synchronize()
