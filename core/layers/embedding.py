"""An embedding whose rows are scaled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from core.layers.linear import Embedding
    from core.layers.weights import WeightGroup


class ScaledEmbedding:
    """`(tokens,) int64 -> (tokens, hidden)`, each row multiplied by `scale`.

    The stored rows are left as they are: a tied head reads them unscaled.

    Attributes:
        group: The stored rows.
    """

    def __init__(self, rows: Embedding, dtype: torch.dtype, scale: float) -> None:
        self.group: WeightGroup = rows.group
        self._rows = rows
        # Models are trained with the factor in their own dtype: 25.25 for sqrt(640) in bfloat16, not 25.298.
        self._scale = torch.tensor(scale, dtype=dtype).item()

    def __call__(self, x: Tensor) -> Tensor:
        """Look up and scale. Raises `PluginError` as `ProductLayer` does."""
        return self._rows(x) * self._scale
