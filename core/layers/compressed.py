"""Attention to compressed entries: one backend layer bound to its cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch

from core.api.kvspecs import KVSpec
from core.layers.attention import CachedAttention
from core.layers.guard import MISSING, Operand, require, rows_of

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.attention import AttentionBackend, Compressed, CompressedLayer, CompressedSite, KVLayout
    from core.api.layers import StepInputs
    from core.layers.guard import LayerContext


class CompressedModule(CachedAttention):
    """Writes the entries of a step to the cache, then attends."""

    site: CompressedSite
    kv_heads = 1

    def __init__(self, site: CompressedSite, layer: CompressedLayer, context: LayerContext) -> None:
        super().__init__(layer)
        self.site = site
        self._dtype: torch.dtype = context.dtype
        self._place = context.attention(site)
        self._write, self._forward = layer.write, layer.forward

    def spec(self, backend: AttentionBackend) -> KVSpec:
        """Return that every entry is kept."""
        return KVSpec()

    def layout(self, backend: AttentionBackend) -> KVLayout:
        """Return the cache of the layer's entries."""
        return cast("Compressed", backend).compressed_layout(self.site)

    def __call__(
        self, q: Tensor, entries: Tensor, step: StepInputs, picked: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return means and logarithms of sums; arguments and results as in `core.api.layers.CompressedAttention`.

        Raises:
            PluginError: CORE-P170, the arguments are not those of the layer and the step; CORE-P171, CORE-P108: the
                backend gave the wrong thing, or raised.
        """
        out: Any = (MISSING, MISSING)
        cause: Exception | None = None
        try:
            tokens = step.token_ids.shape[0]
            if self._fit(q, entries, picked, tokens):
                plan = step.plans[self.group]
                self._write(entries, self.kv, plan)
                found, sums = out = self._forward(q, self.kv, plan, picked)
                heads = (tokens, self.site.num_heads)
                fits = found.shape == (*heads, self.site.head_dim) and sums.shape == heads
                if fits and found.dtype is torch.float32 and sums.dtype is torch.float32:
                    return found, sums
        except Exception as error:
            cause = error
        return self._fail(q, entries, picked, step, out, cause)

    def _fit(self, q: Tensor, entries: Tensor, picked: Tensor | None, tokens: int) -> bool:
        """Whether the tensors of a call are those of a step of so many tokens, and of this layer."""
        site = self.site
        return (
            q.shape == (tokens, site.num_heads, site.head_dim)
            and entries.shape == (tokens, site.head_dim)
            and q.dtype is self._dtype
            and entries.dtype is self._dtype
            and (picked is None or (picked.shape == (tokens, site.picks) and picked.dtype is torch.int32))
        )

    def _fail(
        self, q: object, entries: object, picked: object, step: object, out: Any, cause: Exception | None
    ) -> NoReturn:
        site, tokens = self.site, rows_of(getattr(step, "token_ids", None))
        operands = [
            Operand("the query", q, (tokens, site.num_heads, site.head_dim), self._dtype),
            Operand("the entry", entries, (tokens, site.head_dim), self._dtype),
        ]
        if picked is not None:
            operands.append(Operand("what is picked", picked, (tokens, site.picks or 0), torch.int32))
        found, sums = out if isinstance(out, tuple) and len(out) == 2 else (out, MISSING)
        result = Operand("its result", found, (tokens, site.num_heads, site.head_dim), torch.float32)
        if found is not MISSING and sums is not MISSING and result.problem(self._place.device) is None:
            result = Operand("its sums", sums, (tokens, site.num_heads), torch.float32)
        self._place.fail("forward()", operands, result, cause)


def require_compressed(backend: object, owner: str) -> Compressed:
    """Return a backend that attends to compressed entries.

    Args:
        owner: Whose it is, for errors.

    Raises:
        PluginError: CORE-P110, it does not.
    """
    require(backend, owner, ("compressed", "compressed_layout"), "attention to compressed entries", "compressed")
    return cast("Compressed", backend)
