"""Scales of activations that the rows of an expert share."""

from __future__ import annotations

import torch
from torch import Tensor

from core_plugin_kernels_triton.products.rounding import ROUNDINGS


def scales_of_rows(x: Tensor, activations: str, ids: Tensor, order: Tensor, fixed: Tensor) -> Tensor:
    """Return the scale of each row, `(pairs,)` float32: its expert's, as if the expert were a layer of its own.

    Args:
        x: `(pairs, inputs)` by expert; rows without an expert count for none.
        ids: `(T, k)` int32.
        order: As `by_expert` returns it.
        fixed: `(experts,)` float32, the scales that the checkpoint fixes; 0: it follows from the expert's rows.
    """
    experts = fixed.shape[0]
    expert = ids.flatten().index_select(0, order).long()
    expert = torch.where((expert < 0) | (expert >= experts), experts, expert)
    largest = x.new_zeros(experts + 1, dtype=torch.float32)
    largest.scatter_reduce_(0, expert, x.abs().amax(-1).float(), "amax")
    own = largest[:experts] / ROUNDINGS[activations].largest
    own = torch.where(own > 0, own, 1.0)
    return torch.where(fixed > 0, fixed, own).index_select(0, expert.clamp(max=experts - 1))
