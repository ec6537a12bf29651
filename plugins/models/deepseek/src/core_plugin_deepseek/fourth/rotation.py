"""Rotation of the last dimensions of heads, forth and back. Shapes: T tokens of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, RopeConfig


class Rotation:
    """Rotates as many of the last dimensions as its rotary embedding has, which pairs neighbours."""

    def __init__(self, build: LayerBuilder, config: RopeConfig) -> None:
        self.rope, self.size = build.rope(config), config.head_dim

    def __call__(self, positions: Tensor, x: Tensor) -> Tensor:
        """`(T, heads, D) -> (T, heads, D)`."""
        rest, last = x.split_with_sizes((x.shape[2] - self.size, self.size), dim=2)
        return torch.cat((rest, self.rope(positions, last, last[:, :0])[0]), dim=2)

    def back(self, positions: Tensor, x: Tensor) -> Tensor:
        """Rotate the other way: what is mirrored before and after."""
        mirror = x.new_ones(x.shape[2])
        mirror[x.shape[2] - self.size + 1 :: 2] = -1
        return self(positions, x * mirror) * mirror
