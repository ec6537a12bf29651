"""Measurement of the time that compiling saves a step: the first steps are computed both ways."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from core_plugin_torch_compile.options import LOGGER

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.layers import StepInputs

_LOG = logging.getLogger(LOGGER)

Forward = Callable[["StepInputs"], "Tensor"]


class Comparison:
    """Times steps both ways, and says what it found once it has enough: for each number of tokens its medians.

    Args:
        steps: How many.
    """

    def __init__(self, steps: int) -> None:
        self._left = steps
        self._seconds: dict[int, list[tuple[float, float]]] = defaultdict(list)

    def wants(self, step: StepInputs) -> bool:
        """Whether a step is to be computed both ways: writing the same keys and values again changes nothing.

        One that a graph is captured of is not: it would hold both, and nothing may wait for it.
        """
        return self._left > 0 and step.states is None and not _captured(step)

    def run(self, plain: Forward, compiled: Forward, step: StepInputs) -> Tensor:
        """Return what the compiled form gives."""
        compiled(step)  # compiled now, if ever
        before, _ = _seconds(plain, step)
        now, hidden = _seconds(compiled, step)
        self._seconds[len(step.token_ids)].append((before, now))
        self._left -= 1
        if not self._left:
            for tokens, found in sorted(self._seconds.items()):
                _tell(tokens, found)
        return hidden


def _tell(tokens: int, found: list[tuple[float, float]]) -> None:
    before, now = (median(one) * 1e3 for one in zip(*found))
    what = "1 token" if tokens == 1 else f"{tokens} tokens"
    text = "torch_compile: a step of %s takes %.3f ms instead of %.3f ms (%.3f saved)."
    _LOG.info(text, what, now, before, before - now)


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


def _captured(step: StepInputs) -> bool:
    """Whether the current stream is captured."""
    if step.token_ids.device.type == "cpu":
        return False
    ask = getattr(torch.get_device_module(step.token_ids.device), "is_current_stream_capturing", None)
    return ask is not None and bool(ask())
