"""Rotary embedding with a table of cosines and sines."""

from __future__ import annotations

from functools import cached_property
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
        positions: Context that the engine is started with, in tokens.
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
        self._config, self._positions, self._rows = config, positions, positions
        self._device, self._dtype = device, dtype
        self._rotate = rotate

    def prepare(self, rows: int) -> None:
        """Make the table for the first `rows` positions: those that the KV cache has room for."""
        self._rows = min(rows, self._positions)
        self._table = self._made()

    def __call__(self, positions: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return `q (tokens, heads, head_dim)` and `k (tokens, kv_heads, head_dim)` rotated by position."""
        both: tuple[Tensor, Tensor] = self._rotate(positions, q, k, self._table)
        return both

    @cached_property
    def _table(self) -> Tensor:
        # Not when the model is built: a configuration may name a context for which there is no memory at all.
        return self._made()

    def _made(self) -> Tensor:
        return rotary_table(self._config, self._positions, self._rows).to(device=self._device, dtype=self._dtype)
