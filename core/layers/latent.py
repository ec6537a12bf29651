"""Multi-head latent attention: one backend layer bound to its cache, and the up-projection that it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch

from core.api.kvspecs import KVSpec
from core.api.products import Product
from core.layers.attention import CachedAttention
from core.layers.guard import MISSING, Operand, require, rows_of
from core.layers.params import Parameterised

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from core.api.attention import AttentionBackend, KVLayout, Latent, LatentLayer, LatentSite
    from core.api.forms import Part
    from core.api.layers import StepInputs
    from core.api.products import ProductPlace, Sizes
    from core.layers.guard import LayerContext
    from core.layers.params import Params

_NAMES = ("the query", "the rotated query", "the latent", "the rotated key")


class LatentModule(CachedAttention):
    """Writes latents and rotated keys to the cache, then attends."""

    site: LatentSite
    kv_heads = 1

    def __init__(self, site: LatentSite, layer: LatentLayer, context: LayerContext) -> None:
        super().__init__(layer)
        self.site, self._picks = site, site.picks
        self._sizes = ((site.num_heads, site.key_dim), (site.num_heads, site.rope_dim))
        self._kept = ((site.latent_dim,), (site.rope_dim,))
        self._width = site.num_heads * site.value_dim
        self._dtype: torch.dtype = context.dtype
        self._place = context.attention(site)
        self._write, self._forward = layer.write, layer.forward
        self._forward_picked: Callable[..., Tensor] | None = getattr(layer, "forward_picked", None)

    def spec(self, backend: AttentionBackend) -> KVSpec:
        """Return that every latent is kept."""
        return KVSpec()

    def layout(self, backend: AttentionBackend) -> KVLayout:
        """Return the cache of the layer's latents and rotated keys."""
        return cast("Latent", backend).latent_layout(self.site)

    def __call__(
        self,
        q: Tensor,
        q_rope: Tensor,
        latent: Tensor,
        rope_key: Tensor,
        step: StepInputs,
        picked: Tensor | None = None,
    ) -> Tensor:
        """Return `(tokens, heads * value_dim)`; shapes of the arguments as in `core.api.layers.LatentAttention`.

        Raises:
            PluginError: CORE-P170, the arguments are not those of the layer and the step; CORE-P171, CORE-P108: the
                backend gave the wrong thing, or raised.
        """
        out: Any = MISSING
        cause: Exception | None = None
        given = (q, q_rope, latent, rope_key)
        try:
            tokens = step.token_ids.shape[0]
            if self._fit(given, tokens) and self._fit_picked(picked, tokens):
                plan = step.plans[self.group]
                self._write(latent, rope_key, self.kv, plan)
                if picked is None or self._forward_picked is None:
                    out = self._forward(q, q_rope, self.kv, plan)
                else:
                    out = self._forward_picked(q, q_rope, self.kv, plan, picked)
                if out.shape == (tokens, self._width) and out.dtype is self._dtype:
                    return out  # type: ignore[no-any-return]
        except Exception as error:
            cause = error
        return self._fail(given, picked, step, out, cause)

    def _fit(self, given: tuple[Tensor, ...], tokens: int) -> bool:
        """Whether the tensors of a call are those of a step of so many tokens."""
        return all(
            one.shape == (tokens, *sizes) and one.dtype is self._dtype
            for one, sizes in zip(given, (*self._sizes, *self._kept))
        )

    def _fit_picked(self, picked: Tensor | None, tokens: int) -> bool:
        """Whether picked positions are those of such a step, and of a layer that attends to such."""
        return picked is None or (picked.shape == (tokens, self._picks) and picked.dtype is torch.int32)

    def _fail(
        self, given: tuple[object, ...], picked: object, step: object, out: object, cause: Exception | None
    ) -> NoReturn:
        tokens = rows_of(getattr(step, "token_ids", None))
        named = zip(_NAMES, given, (*self._sizes, *self._kept), strict=True)
        operands = [Operand(name, one, (tokens, *sizes), self._dtype) for name, one, sizes in named]
        if picked is not None:
            operands.append(Operand("what is picked", picked, (tokens, self._picks or 0), torch.int32))
        result = Operand("its result", out, (tokens, self._width), self._dtype)
        self._place.fail("forward()" if picked is None else "forward_picked()", operands, result, cause)


class UpProjection(Product):
    """Opens an up-projection to the compute dtype, as a latent layer takes it. It multiplies nothing.

    Its site has one part: the key of each head, `key_dim` rows, followed by its value, `value_dim` rows.
    """

    def __init__(self, place: ProductPlace, site: LatentSite) -> None:
        super().__init__(place, {})
        self._site = site

    def sizes(self) -> Sizes:
        """Return `key (heads, key_dim, latent_dim)` and `value (heads, latent_dim, value_dim)`."""
        site, dtype = self._site, self.place.dtype
        return {
            "key": ((site.num_heads, site.key_dim, site.latent_dim), dtype),
            "value": ((site.num_heads, site.latent_dim, site.value_dim), dtype),
        }

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Open all rows and divide them by heads."""
        site = self._site
        weight = part.dense(self.place.dtype)
        heads = weight.view(site.num_heads, site.key_dim + site.value_dim, site.latent_dim)
        out["key"].copy_(heads[:, : site.key_dim])
        out["value"].copy_(heads[:, site.key_dim :].transpose(1, 2))


class UpReader(Parameterised):
    """Hands the up-projection of one layer to the backend."""

    def __init__(self, use_up: Callable[[Tensor, Tensor], None]) -> None:
        self._use_up = use_up

    def bind(self, params: Params) -> None:
        """Use this up-projection from now on."""
        super().bind(params)
        self._use_up(params["key"], params["value"])


def require_latent(backend: object, owner: str) -> Latent:
    """Return a backend that has latent attention.

    Args:
        owner: Whose it is, for errors.

    Raises:
        PluginError: CORE-P110, it has none.
    """
    require(backend, owner, ("latent", "latent_layout"), "latent attention", "latent")
    return cast("Latent", backend)
