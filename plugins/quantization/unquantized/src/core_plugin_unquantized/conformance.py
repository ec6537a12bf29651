"""What the method `int8` makes of plain weights, for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.testing.conformance import RoundingSample

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerSite


def samples() -> Iterator[RoundingSample]:
    """Yield how weights are rounded; activations are too, which adds to the error."""
    yield RoundingSample("rows of 8 bits", rounded, tolerance=0.02, plugin="int8")


def rounded(site: LayerSite, weight: Tensor) -> Tensor:
    """Return an inner layer's weight with 8 bits and one scale per row; embeddings and heads are left as they are."""
    if not site.inner:
        return weight
    scale = weight.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
    return (weight / scale).round() * scale
