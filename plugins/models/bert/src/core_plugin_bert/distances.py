"""Score biases by the distance between two tokens: T5's table of distances, as MPNet has it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder
    from core_plugin_bert.config import EncoderConfig

_FARTHEST = 128
"""Distance from which on all are alike."""


class Distances:
    """One table for all layers: a row for each of the near distances, then for ever wider ranges of them."""

    def __init__(self, c: EncoderConfig, build: LayerBuilder) -> None:
        self.rows = c.distance_rows
        self.table = build.embedding(c.distance_rows, c.num_heads, "encoder.relative_attention_bias", shard=None)
        self.share = build.heads(c.num_heads, c.num_heads)

    def __call__(self, length: int, device: torch.device) -> Tensor:
        """Return `(heads, length, length)`: a row for each query, a column for each key."""
        by_head = self.table(buckets(length, self.rows).to(device)).t()
        by_distance = self.share.of(by_head)  # (heads, 2 * length - 1), the key far behind first
        return by_distance.unfold(1, length, 1).flip(1)


def buckets(length: int, rows: int) -> Tensor:
    """Return the row of the table for each distance from `1 - length` to `length - 1`, key minus query."""
    distance = torch.arange(1 - length, length)
    half = rows // 2  # one half for keys before the query, one for those behind
    exact = half // 2
    size = distance.abs()
    wide = torch.log(size.clamp(min=1).float() / exact) / math.log(_FARTHEST / exact) * (half - exact)
    far = (exact + wide.long()).clamp(max=half - 1)
    return torch.where(size < exact, size, far) + half * (distance > 0)
