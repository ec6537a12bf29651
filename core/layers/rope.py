"""Rotary embedding with a table of cosines and sines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.ops.rotary import rotary, rotary_table

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from core.api.rotary import RopeConfig
    from core.ops.registry import Op


class RotaryEmbedding:
    """Rotates queries and keys. One instance serves every layer with the same configuration.

    Args:
        positions: Context that the engine is started with, in tokens; the table has a row for each.
        rotate: The form of `rotary` to use.
    """

    def __init__(
        self,
        config: RopeConfig,
        positions: int,
        *,
        device: torch.device,
        dtype: torch.dtype,
        rotate: Op = rotary,
    ) -> None:
        self._rotate = rotate
        self._table = rotary_table(config, positions).to(device=device, dtype=dtype)

    def __call__(self, positions: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return `q (tokens, heads, head_dim)` and `k (tokens, kv_heads, head_dim)` rotated by position."""
        both: tuple[Tensor, Tensor] = self._rotate(positions, q, k, self._table)
        return both
