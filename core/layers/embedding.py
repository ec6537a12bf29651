"""An embedding whose rows are scaled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from core.layers.linear import Embedding

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.quantization import LayerQuant, LayerSite
    from core.layers.guard import LayerContext
    from core.layers.params import ParamGroup


class ScaledEmbedding(Embedding):
    """`(tokens,) int64 -> (tokens, hidden)`, each row multiplied by `scale`.

    The stored rows are left as they are: a tied head reads them unscaled.
    """

    def __init__(
        self, site: LayerSite, quant: LayerQuant, group: ParamGroup, context: LayerContext, *, scale: float
    ) -> None:
        super().__init__(site, quant, group, context)
        # Models are trained with the factor in their own dtype: 25.25 for sqrt(640) in bfloat16, not 25.298.
        self._scale = torch.tensor(scale, dtype=context.dtype).item()

    def __call__(self, x: Tensor) -> Tensor:
        """Look up and scale. Raises `PluginError` as `QuantLayer` does."""
        return super().__call__(x) * self._scale
