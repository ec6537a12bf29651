"""Plain weights as the methods `int8` and `int4` round them, for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core_testing.conformance import RoundingSample

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerSite

_FOUR_BITS = 0.12
"""Relative error of normally distributed weights in 4 bits: a step is a third of their standard deviation."""


def samples() -> Iterator[RoundingSample]:
    """Yield how weights are rounded; `int8` rounds activations too, which adds to the error."""
    yield RoundingSample("rows of 8 bits", rounded, tolerance=0.02, plugin="int8")
    yield RoundingSample("groups of 4 bits", tolerance=_FOUR_BITS, plugin="int4")


def rounded(site: LayerSite, weight: Tensor) -> Tensor:
    """Return an inner layer's weight with 8 bits and one scale per row; embeddings and heads are left as they are."""
    if not site.inner:
        return weight
    scale = weight.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
    return (weight / scale).round() * scale
