"""Positions that latent attention is limited to: one picker of a backend, bound to its cache of index keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch

from core.api.kvspecs import KVSpec
from core.layers.attention import CachedAttention
from core.layers.guard import MISSING, Operand, require, rows_of

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.attention import AttentionBackend, KVLayout, Picker, Picks, PickSite
    from core.api.layers import StepInputs
    from core.layers.guard import LayerContext

_WHAT = "attention to picked positions"
_NAMES = ("the index query", "the index key", "the weights of the index heads")


class PickerModule(CachedAttention):
    """Writes index keys to the cache, then picks positions."""

    site: PickSite
    kv_heads = 1

    def __init__(self, site: PickSite, picker: Picker, context: LayerContext) -> None:
        super().__init__(picker)
        self.site = site
        self._sizes = ((site.num_heads, site.key_dim), (site.key_dim,), (site.num_heads,))
        self._dtypes = (context.dtype, context.dtype, torch.float32)
        self._place = context.attention(site)
        self._write, self._forward = picker.write, picker.forward

    def spec(self, backend: AttentionBackend) -> KVSpec:
        """Return that every index key is kept."""
        return KVSpec()

    def layout(self, backend: AttentionBackend) -> KVLayout:
        """Return the cache of the index keys."""
        return cast("Picks", backend).picker_layout(self.site)

    def __call__(self, q: Tensor, key: Tensor, weights: Tensor, step: StepInputs) -> Tensor | None:
        """Return `(tokens, picks)` int32 or None; arguments as in `core.api.layers.PositionPicker`.

        Raises:
            PluginError: CORE-P170, the arguments are not those of the site and the step; CORE-P171, CORE-P108: the
                backend gave the wrong thing, or raised.
        """
        out: Any = MISSING
        cause: Exception | None = None
        given = (q, key, weights)
        try:
            tokens = step.token_ids.shape[0]
            if self._fit(given, tokens):
                plan = step.plans[self.group]
                self._write(key, self.kv, plan)
                out = self._forward(q, weights, self.kv, plan)
                if out is None or (out.shape == (tokens, self.site.picks) and out.dtype is torch.int32):
                    return out  # type: ignore[no-any-return]
        except Exception as error:
            cause = error
        return self._fail(given, step, out, cause)

    def _fit(self, given: tuple[Tensor, ...], tokens: int) -> bool:
        """Whether the tensors of a call are those of a step of so many tokens."""
        return all(
            one.shape == (tokens, *sizes) and one.dtype is dtype
            for one, sizes, dtype in zip(given, self._sizes, self._dtypes)
        )

    def _fail(self, given: tuple[object, ...], step: object, out: object, cause: Exception | None) -> NoReturn:
        tokens = rows_of(getattr(step, "token_ids", None))
        named = zip(_NAMES, given, self._sizes, self._dtypes, strict=True)
        operands = [Operand(name, one, (tokens, *sizes), dtype) for name, one, sizes, dtype in named]
        result = Operand("its result", out, (tokens, self.site.picks), torch.int32)
        self._place.fail("forward()", operands, result, cause)


def require_picks(backend: object, owner: str) -> Picks:
    """Return a backend that has pickers.

    Args:
        owner: Whose it is, for errors.

    Raises:
        PluginError: CORE-P110, it has none.
    """
    require(backend, owner, ("picker", "picker_layout"), _WHAT, "picks", "compressed")
    return cast("Picks", backend)


def require_takes_picks(layer: object, owner: str) -> None:
    """Raise `PluginError` CORE-P110 for a latent layer that attends to all positions only."""
    require(layer, owner, ("forward_picked",), _WHAT, "picks")
