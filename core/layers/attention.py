"""Attention: one backend layer bound to its cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch

from core.api.errors import PluginError
from core.api.kvspecs import KVSpec
from core.layers.guard import MISSING, Operand, require, rows_of
from core.layers.params import Parameterised, ParamGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from core.api.attention import (
        AttentionBackend,
        AttentionLayer,
        AttentionSite,
        CompressedSite,
        EncoderLayer,
        KVLayout,
        LatentSite,
        PickSite,
        StoresRotated,
    )
    from core.api.layers import StepInputs
    from core.layers.guard import LayerContext
    from core.layers.params import Params
    from core.layers.rope import RotaryEmbedding


class _Heads:
    """The sizes of queries, keys and values of one attention layer, which are those of the step."""

    def __init__(self, site: AttentionSite, context: LayerContext) -> None:
        self.queries, self.keys = (site.num_heads, site.head_dim), (site.num_kv_heads, site.head_dim)
        self.values = (site.num_kv_heads, site.value_dim or site.head_dim)
        self.width = site.num_heads * self.values[1]
        self.dtype: torch.dtype = context.dtype
        self._place = context.attention(site)

    def fit(self, q: Tensor, k: Tensor | None, v: Tensor | None, tokens: int) -> bool:
        """Whether the tensors of a call are those of a step of so many tokens; keys and values may both be None."""
        keys, dtype = (tokens, *self.keys), self.dtype
        if k is None or v is None:
            return k is v and q.shape == (tokens, *self.queries) and q.dtype is dtype
        return (
            q.shape == (tokens, *self.queries)
            and k.shape == keys
            and v.shape == (tokens, *self.values)
            and q.dtype is dtype
            and k.dtype is dtype
            and v.dtype is dtype
        )

    def fail(self, given: tuple[object, ...], step: object, out: object, cause: Exception | None) -> NoReturn:
        """Say why a call with `given` queries, keys and values failed; see `Place.fail`."""
        tokens = rows_of(getattr(step, "token_ids", None))
        sizes = ((tokens, *self.queries), (tokens, *self.keys), (tokens, *self.values))
        named = zip(("the query", "the key", "the value"), given, sizes, strict=True)
        # Only together may keys and values be None.
        lacks = given[1] is given[2] is None
        operands = [Operand(name, one, shape, self.dtype) for name, one, shape in named if not (lacks and one is None)]
        result = Operand("its result", out, (tokens, self.width), self.dtype)
        self._place.fail("forward()", operands, result, cause)


class CachedAttention(Parameterised):
    """A layer that keeps something of every token in a cache.

    Its parameters are the scales of that cache. The backend's layer gets them if it is a `TakesScales`.

    Attributes:
        site: Which layer this is, and its geometry.
        kv_heads: Heads of what it keeps.
        keeps_values: Whether it keeps values beside keys, with a scale of their own.
        takes_scales: Whether scales other than 1 can be used.
        kv: The layer's cache; bound once by the worker, before the first call.
        group: Its cache group, whose plan it reads; bound with `kv`.
    """

    site: AttentionSite | LatentSite | PickSite | CompressedSite
    kv_heads: int
    keeps_values: bool = False
    kv: Tensor
    group: int = 0

    def __init__(self, layer: object) -> None:
        self._after_load: Callable[[], None] | None = getattr(layer, "after_load", None)
        self._use_scales: Callable[[Tensor, Tensor], None] | None = getattr(layer, "use_scales", None)
        self.takes_scales = self._use_scales is not None

    def bind(self, params: Params) -> None:
        """Use these scales from now on."""
        super().bind(params)
        if self._use_scales is not None:
            self._use_scales(params["k_scale"], params["v_scale"])

    def after_load(self) -> None:
        """Let the backend's layer act once weights are in place, if it wants to."""
        if self._after_load is not None:
            self._after_load()

    def spec(self, backend: AttentionBackend) -> KVSpec:
        """Return what the layer keeps of the past, in a cache of `backend`."""
        raise NotImplementedError

    def layout(self, backend: AttentionBackend) -> KVLayout:
        """Return the cache that `backend` wants for the layer."""
        raise NotImplementedError


class AttentionModule(CachedAttention):
    """Writes keys and values to the cache, then attends.

    Args:
        rotates: The layer is a `StoresRotated`.
    """

    site: AttentionSite
    keeps_values = True

    def __init__(
        self, site: AttentionSite, layer: AttentionLayer, context: LayerContext, *, rotates: bool = False
    ) -> None:
        super().__init__(layer)
        self.site, self.kv_heads = site, site.num_kv_heads
        self._heads = _Heads(site, context)
        self._write = layer.write_kv
        self._forward = layer.forward
        if rotates:
            require(
                layer, context.owners.attention, ("write_rotated",), "layers that rotate while they store", "rotary"
            )
        self._write_rotated: Any = cast("StoresRotated", layer).write_rotated if rotates else None

    def spec(self, backend: AttentionBackend) -> KVSpec:
        """Return what the backend says that the layer keeps, or what follows from its site."""
        report: Callable[[AttentionSite], KVSpec] | None = getattr(backend, "kv_spec", None)
        return _default_spec(self.site) if report is None else report(self.site)

    def layout(self, backend: AttentionBackend) -> KVLayout:
        """Return the cache of the layer's keys and values."""
        return backend.kv_layout(self.site)

    def __call__(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        step: StepInputs,
        rope: RotaryEmbedding | None = None,
    ) -> Tensor:
        """Return `(tokens, heads * head_dim)`; the arguments are those of `core.api.layers.Attention`.

        Raises:
            PluginError: CORE-P170, the arguments are not those of the layer and the step; CORE-P171, CORE-P108: the
                backend gave the wrong thing, or raised.
        """
        out: Any = MISSING
        cause: Exception | None = None
        try:
            moved = rope is not None and rope.movable and k is not None and self._write_rotated is not None
            if rope is not None and not moved:
                q, k = self._rotated(q, k, rope, step)
            tokens = step.token_ids.shape[0]
            if self._heads.fit(q, k, v, tokens):
                plan = step.plans[self.group]
                if k is not None and v is not None:  # both or neither, by `fit`
                    if rope is not None and moved:
                        turn = rope.rotation(step.positions, q, k)
                        q = self._write_rotated(q, k, v, turn, self.kv, plan)
                    else:
                        self._write(k, v, self.kv, plan)
                out = self._forward(q, self.kv, plan)
                if out.shape == (tokens, self._heads.width) and out.dtype is self._heads.dtype:
                    return out  # type: ignore[no-any-return]
        except Exception as error:
            cause = error
        return self._heads.fail((q, k, v), step, out, cause)

    def _rotated(
        self, q: Tensor, k: Tensor | None, rope: RotaryEmbedding, step: StepInputs
    ) -> tuple[Tensor, Tensor | None]:
        """Return queries and keys rotated by core; there may be no keys."""
        q, turned = rope(step.positions, q, q[:, :0] if k is None else k)
        return q, None if k is None else turned


def _default_spec(site: AttentionSite) -> KVSpec:
    """Return what the layer of a backend that says nothing keeps."""
    if site.chunk is not None:
        return KVSpec("chunked", site.chunk)
    return KVSpec() if site.window is None else KVSpec("sliding", site.window)


def shared_attention(made: Iterable[CachedAttention], site: AttentionSite) -> AttentionModule:
    """Return the one of `made` whose cache is that of `site`.

    Raises:
        ValueError: There is none of this geometry.
    """
    for module in made:
        if isinstance(module, AttentionModule) and module.site == site:
            return module
    raise ValueError(f"no attention of this geometry keeps the keys and values of layer {site.layer}, to be shared")


class _SinkReader(Parameterised):
    """Hands the sinks of one layer to the backend."""

    def __init__(self, use_sinks: Callable[[Tensor], None]) -> None:
        self._use_sinks = use_sinks

    def bind(self, params: Params) -> None:
        """Use these sinks from now on."""
        super().bind(params)
        (sinks,) = params.values()
        self._use_sinks(sinks)


def sinks_group(layer: object, site: AttentionSite, name: str, owner: str) -> ParamGroup:
    """Return the parameter of a layer's sinks, one number per head, never quantized.

    Args:
        name: Of the checkpoint's tensor.
        owner: Whose `layer` is, for errors.

    Raises:
        PluginError: CORE-P230, the layer takes no sinks.
    """
    use_sinks: Callable[[Tensor], None] | None = getattr(layer, "use_sinks", None)
    if use_sinks is None:
        raise PluginError(
            "CORE-P230",
            f"{owner}: its layers have no use_sinks(), and layer {site.layer} has sinks.",
            hint="The model's shape must name 'sinks' among its features, or the backend must not.",
        )
    module, _, last = name.rpartition(".")
    group = ParamGroup(module, lambda param, tensor: tensor.dense(torch.float32))
    group.declare(last, (site.num_heads,), torch.float32)
    group.read_by(_SinkReader(use_sinks), lambda params: params)
    return group


class EncoderModule:
    """Attends within the prompts of a step; nothing is kept.

    Attributes:
        site: Which layer this is, and its geometry.
    """

    def __init__(self, site: AttentionSite, layer: EncoderLayer, context: LayerContext) -> None:
        self.site = site
        self._heads = _Heads(site, context)
        self._forward = layer.forward

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, step: StepInputs, rope: RotaryEmbedding | None = None
    ) -> Tensor:
        """Return `(tokens, heads * head_dim)`; arguments and errors as those of `AttentionModule`."""
        out: Any = MISSING
        cause: Exception | None = None
        try:
            if rope is not None:
                q, k = rope(step.positions, q, k)
            tokens = step.token_ids.shape[0]
            if self._heads.fit(q, k, v, tokens):
                out = self._forward(q, k, v, step.plan)
                if out.shape == (tokens, self._heads.width) and out.dtype is self._heads.dtype:
                    return out  # type: ignore[no-any-return]
        except Exception as error:
            cause = error
        return self._heads.fail((q, k, v), step, out, cause)
