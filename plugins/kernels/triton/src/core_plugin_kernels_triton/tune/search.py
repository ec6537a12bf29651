"""Which sizes of tiles are the fastest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from core_plugin_kernels_triton.tune.cases import Call
    from core_plugin_kernels_triton.tune.parts import Part

GAIN = 1.03
"""Sizes of the table stay unless others are faster by this: what two runs differ by is no reason."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The best sizes of one kernel.

    Attributes:
        ratio: Speed with them, in that of the table's: the geometric mean over all cases.
        tried, failed: Sizes that were tried, and those that did not compile or run.
    """

    kernel: str
    best: Mapping[str, int]
    ratio: float
    tried: int
    failed: int

    @property
    def better(self) -> bool:
        """Whether they are worth a change."""
        return self.ratio >= GAIN


def search(
    part: Part,
    device: torch.device,
    cases: Mapping[str, Sequence[Call]],
    time: Callable[[Call], float],
    tell: Callable[[str], object],
) -> list[Finding]:
    """Return the best sizes of each kernel; the table is as it was afterwards.

    Args:
        part: Whose table is searched.
        cases: Kernel -> calls whose time counts; a kernel without any is left out.
        time: Returns the milliseconds of a call.
        tell: Told what is being timed.
    """
    found = []
    for kernel, calls in cases.items():
        if calls:
            tell(f"timing {kernel} of {part.name}")
            found.append(_best(part, device, kernel, calls, time))
    return found


def _best(
    part: Part, device: torch.device, kernel: str, calls: Sequence[Call], time: Callable[[Call], float]
) -> Finding:
    table = part.tiles(device)
    before = table[kernel]
    base = [time(call) for call in calls]
    best, ratio, tried, failed = before, 1.0, 0, 0
    try:
        for sizes in _candidates(part.candidates[kernel], before):
            tried += 1
            table[kernel] = sizes
            try:
                speed = _ratio(base, [time(call) for call in calls])
            except Exception:  # the compiler's own errors: too many registers, too much shared memory
                failed += 1
                continue
            if speed > ratio:
                best, ratio = sizes, speed
    finally:
        table[kernel] = before
    return Finding(kernel, best, ratio, tried, failed)


def _candidates(values: Mapping[str, Sequence[int]], before: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    return ({**before, **dict(zip(values, chosen, strict=True))} for chosen in product(*values.values()))


def _ratio(base: Sequence[float], times: Sequence[float]) -> float:
    return math.exp(sum(math.log(old / new) for old, new in zip(base, times, strict=True)) / len(base))
