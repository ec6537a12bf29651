"""Rotary embedding with a table of cosines and sines."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from core.api.attention import Rotation
from core.layers.guard import MISSING, Operand, rows_of
from core.ops.rotary import rotary, rotary_table

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.rotary import RopeConfig
    from core.layers.guard import LayerContext
    from core.ops.registry import Op


class RotaryEmbedding:
    """Rotates queries and keys. One instance serves every layer with the same configuration.

    Args:
        positions: Context that the engine is started with, in tokens.
        rotate: The form of `rotary` to use.
        owner: Whose form that is, for errors.
        commanded: The user named what rotates.

    Attributes:
        movable: Whether attention may rotate instead, by the same table.
    """

    def __init__(
        self,
        config: RopeConfig,
        positions: int,
        context: LayerContext,
        *,
        rotate: Op = rotary,
        owner: str = "core",
        commanded: bool = False,
    ) -> None:
        self._config, self._positions, self._rows = config, positions, positions
        self._device, self._dtype = context.device, context.dtype
        self._rotate = rotate
        self.movable = not commanded
        self._place = context.place("the rotary embedding", owner)

    def prepare(self, rows: int) -> None:
        """Make the table for the first `rows` positions: those that the KV cache has room for."""
        self._rows = min(rows, self._positions)
        self._table = self._made()

    def __call__(self, positions: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return `q (tokens, heads, head_dim)` and `k (tokens, kv_heads, head_dim)` rotated by position.

        Raises:
            PluginError: As `QuantLayer` does.
        """
        rotated: Any = MISSING
        cause: Exception | None = None
        try:
            if self._fits(positions, q, k):
                rotated, keys = self._rotate(positions, q, k, self._table)
                if rotated.shape == q.shape and keys.shape == k.shape:
                    return rotated, keys
        except Exception as error:
            cause = error
        return self._fail(positions, q, k, rotated, cause)

    def rotation(self, positions: Tensor, q: Tensor, k: Tensor) -> Rotation:
        """Return by what `q` and `k` are to be rotated. Raises as a call does."""
        if not self._fits(positions, q, k):
            self._fail(positions, q, k, MISSING, None)
        return Rotation(positions, self._table, self._config.interleaved)

    def _fits(self, positions: Tensor, q: Tensor, k: Tensor) -> bool:
        tokens, _, size = q.shape
        return (
            size == self._config.head_dim
            and k.shape[::2] == (tokens, size)
            and k.dim() == 3
            and positions.shape == (tokens,)
            and positions.dtype is torch.int64
            and q.dtype is self._dtype
            and k.dtype is self._dtype
        )

    def _fail(self, positions: object, q: object, k: object, result: object, cause: Exception | None) -> NoReturn:
        tokens, size = rows_of(positions), self._config.head_dim
        operands = [
            Operand("positions", positions, ("tokens",), torch.int64),
            Operand("the query", q, (tokens, "heads", size), self._dtype),
            Operand("the key", k, (tokens, "kv_heads", size), self._dtype),
        ]
        result = Operand("its result", result, (tokens, "heads", size), self._dtype)
        self._place.fail("the operation", operands, result, cause)

    @cached_property
    def _table(self) -> Tensor:
        # Not when the model is built: a configuration may name a context for which there is no memory at all.
        return self._made()

    def _made(self) -> Tensor:
        return rotary_table(self._config, self._positions, self._rows).to(device=self._device, dtype=self._dtype)
