"""How attention and MLP of a layer add to the residual.

A layer hands on what it adds (`pending`) apart from the residual: the norm of the next one adds it up on the way.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, TypeAlias

from core_plugin_decoder.attention import SelfAttention
from core_plugin_decoder.description import LatentAttention, Linear, Mixture, Recurrence
from core_plugin_decoder.latent import LatentSelfAttention
from core_plugin_decoder.mixture import MixtureOfExperts
from core_plugin_decoder.mlp import FeedForward
from core_plugin_decoder.norms import norm

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.layers import Embedding, Norm
    from core_plugin_decoder.description import Decoder, Layer
    from core_plugin_decoder.index import Picked

    Pending = Tensor | None
    Sublayer: TypeAlias = "_Adding | _Parallel | _Around | _Aside"
    Body = Callable[[Tensor, StepInputs], Tensor]


def sublayers(
    decoder: Decoder, layer: Layer, build: LayerBuilder, index: int, growth: Embedding | None, picked: Picked
) -> list[Sublayer]:
    """Return what a layer does, in order: each takes `(pending, residual, step)` and returns the first two."""
    kv = index * decoder.halves
    own = _sublayers(decoder, layer, build, index, kv, growth, picked)
    if layer.second is None:
        return own
    second = _sublayers(decoder, layer.second, build, index, kv + 1, growth, picked)
    if layer.aside is None:
        return [*own, *second]
    *first, last = own
    if not first or type(last) is not _Adding or last.after is not None or last.scale != 1.0:
        raise ValueError(f"layer {index} has a mixture aside, and is not attention and MLP, one after the other")
    aside = MixtureOfExperts(layer.aside, build, decoder.hidden_size, decoder.layer_path(index))
    return [*first, _Aside(last.before, last.body, _by_token(aside), second)]


def _sublayers(
    decoder: Decoder, layer: Layer, build: LayerBuilder, index: int, kv: int, growth: Embedding | None, picked: Picked
) -> list[Sublayer]:
    path = decoder.layer_path(index)
    given = (layer.before_attention, layer.after_attention, layer.before_mlp, layer.after_mlp)
    norms = [None if one is None else norm(one, build, decoder.hidden_size, path) for one in given]
    attention = _attention(decoder, layer, build, index, kv, growth, picked)
    if attention is not None and layer.recurrence is not None:
        attention = _both(attention, _recurrence(decoder, layer.recurrence, build, path))
    mlp = _mlp(decoder, layer, build, path)
    if layer.parallel:
        if attention is None or mlp is None:
            raise ValueError(f"layer {index} is parallel, and lacks attention or MLP")
        return [_Parallel(norms[0], norms[2], attention, mlp, layer.scale)]
    kind = _Closing if layer.closing else _Adding
    if layer.beside is not None:
        if attention is None or mlp is None:
            raise ValueError(f"layer {index} has an MLP beside, and lacks attention or the other MLP")
        before = None if layer.before_beside is None else norm(layer.before_beside, build, decoder.hidden_size, path)
        beside = FeedForward(layer.beside, build, decoder.hidden_size, path)
        return [_Around(norms[0], attention, norms[2], mlp, before, _by_token(beside))]
    found: list[Sublayer] = []
    if layer.weighs is not None:
        bodies = ((norms[0], attention, layer.weighs[0]), (norms[2], mlp, layer.weighs[1]))
        return [_Weighing(before, body, *factors) for before, body, factors in bodies if body is not None]
    if attention is not None:
        found.append(kind(norms[0], attention, norms[1], layer.scale))
    if mlp is not None:
        found.append(kind(norms[2], mlp, norms[3], layer.scale))
    return found


def _attention(
    decoder: Decoder, layer: Layer, build: LayerBuilder, index: int, kv: int, growth: Embedding | None, picked: Picked
) -> Body | None:
    if layer.attention is None:
        return None
    if isinstance(layer.attention, Linear):
        return _linear(decoder, layer.attention, build, decoder.layer_path(index))
    if isinstance(layer.attention, Recurrence):
        return _recurrence(decoder, layer.attention, build, decoder.layer_path(index))
    if isinstance(layer.attention, LatentAttention):
        return LatentSelfAttention(decoder, layer.attention, build, index, kv, picked)
    return SelfAttention(decoder, layer.attention, build, index, growth, kv)


def _recurrence(decoder: Decoder, given: Recurrence, build: LayerBuilder, layer: str) -> Body:
    return given.make(build, decoder.hidden_size, f"{layer}.{given.name}")


def _both(first: Body, second: Body) -> Body:
    """Return the sum of what two make of the same."""
    return lambda hidden, step: first(hidden, step) + second(hidden, step)


def _mlp(decoder: Decoder, layer: Layer, build: LayerBuilder, path: str) -> Body | None:
    if layer.mlp is None:
        return None
    if isinstance(layer.mlp, Linear):
        return _linear(decoder, layer.mlp, build, path)
    if isinstance(layer.mlp, Mixture):
        return _by_token(MixtureOfExperts(layer.mlp, build, decoder.hidden_size, path))
    return _by_token(FeedForward(layer.mlp, build, decoder.hidden_size, path))


def _linear(decoder: Decoder, given: Linear, build: LayerBuilder, path: str) -> Body:
    size = decoder.hidden_size
    return _by_token(build.linear(size, size, f"{path}.{given.name}", bias=given.bias))


def _by_token(body: Callable[[Tensor], Tensor]) -> Body:
    """Return the body of a sublayer that looks at nothing but each token's own hidden state."""
    return lambda hidden, step: body(hidden)


class Crossing:
    """Hidden states between two layers: kept for later ones, and blended with those that are kept.

    Args:
        layer: The one that reads them.
    """

    def __init__(self, layer: Layer) -> None:
        self.keeps, self.blends = layer.keeps, layer.blends

    def __call__(self, pending: Pending, residual: Tensor, kept: dict[int, Tensor]) -> tuple[Pending, Tensor]:
        """Return what a sublayer returns; `kept` are the hidden states of the step by place, `(T, D)`."""
        hidden = residual if pending is None else residual + pending
        for place in self.keeps:
            kept[place] = hidden
        for place, share in self.blends:
            hidden = kept[place] * share + hidden * (1 - share)
        return None, hidden


class _Adding:
    """`residual + scale * after(body(before(residual)))`."""

    def __init__(self, before: Norm | None, body: Body, after: Norm | None, scale: float) -> None:
        self.before, self.body, self.after, self.scale = before, body, after, scale

    def __call__(self, pending: Pending, residual: Tensor, step: StepInputs) -> tuple[Pending, Tensor]:
        hidden, residual = _entered(self.before, pending, residual)
        out = self.body(hidden, step)
        if self.after is not None:
            out = self.after(out)
        return out if self.scale == 1.0 else out * self.scale, residual

    def again(self, build: LayerBuilder, later: int) -> _Adding:
        """Return the same for another pass; arguments as of `SelfAttention.again`."""
        other = copy(self)
        other.body = _again(self.body, build, later)
        return other


class _Closing(_Adding):
    """`after(residual + scale * body(before(residual)))`."""

    def __call__(self, pending: Pending, residual: Tensor, step: StepInputs) -> tuple[Pending, Tensor]:
        hidden, residual = _entered(self.before, pending, residual)
        out = self.body(hidden, step)
        if self.scale != 1.0:
            out = out * self.scale
        if self.after is None:
            return out, residual
        return None, self.after.add(out, residual)[0]


class _Weighing(_Adding):
    """`share * before(residual) + scale * body(before(residual))`."""

    def __init__(self, before: Norm | None, body: Body, share: float, scale: float) -> None:
        super().__init__(before, body, None, scale)
        self.share = share

    def __call__(self, pending: Pending, residual: Tensor, step: StepInputs) -> tuple[Pending, Tensor]:
        hidden, _ = _entered(self.before, pending, residual)
        out = self.body(hidden, step)
        return (
            out if self.scale == 1.0 else out * self.scale,
            hidden if self.share == 1.0 else hidden * self.share,
        )


class _Parallel:
    """`residual + scale * (attention(before(residual)) + mlp(before_mlp(residual)))`."""

    def __init__(
        self,
        before: Norm | None,
        before_mlp: Norm | None,
        attention: Body,
        mlp: Body,
        scale: float,
    ) -> None:
        self.before, self.before_mlp, self.attention, self.mlp, self.scale = before, before_mlp, attention, mlp, scale

    def __call__(self, pending: Pending, residual: Tensor, step: StepInputs) -> tuple[Pending, Tensor]:
        hidden, residual = _entered(self.before, pending, residual)
        other = hidden if self.before_mlp is None else self.before_mlp(residual)
        out = self.attention(hidden, step) + self.mlp(other, step)
        return out if self.scale == 1.0 else out * self.scale, residual

    def again(self, build: LayerBuilder, later: int) -> _Parallel:
        """Return the same for another pass; arguments as of `SelfAttention.again`."""
        other = copy(self)
        other.attention = _again(self.attention, build, later)
        return other


def _again(body: Body, build: LayerBuilder, later: int) -> Body:
    return body.again(build, later) if isinstance(body, SelfAttention) else body


class _Around:
    """`inner + beside(before_beside(inner)) + mlp(before_mlp(residual))`.

    `inner` is `residual + body(before(residual))`.
    """

    def __init__(
        self,
        before: Norm | None,
        body: Body,
        before_mlp: Norm | None,
        mlp: Body,
        before_beside: Norm | None,
        beside: Body,
    ) -> None:
        self.before, self.body, self.before_mlp, self.mlp = before, body, before_mlp, mlp
        self.before_beside, self.beside = before_beside, beside

    def __call__(self, pending: Pending, residual: Tensor, step: StepInputs) -> tuple[Pending, Tensor]:
        hidden, residual = _entered(self.before, pending, residual)
        out = self.mlp(residual if self.before_mlp is None else self.before_mlp(residual), step)
        other, residual = _entered(self.before_beside, self.body(hidden, step), residual)
        return out + self.beside(other, step), residual

    def again(self, build: LayerBuilder, later: int) -> _Around:
        """Return the same for another pass; arguments as of `SelfAttention.again`."""
        other = copy(self)
        other.body = _again(self.body, build, later)
        return other


class _Aside:
    """`second(residual + body(before(residual))) + aside(before(residual))`."""

    def __init__(self, before: Norm | None, body: Body, aside: Body, second: list[Sublayer]) -> None:
        self.before, self.body, self.aside, self.second = before, body, aside, second

    def __call__(self, pending: Pending, residual: Tensor, step: StepInputs) -> tuple[Pending, Tensor]:
        hidden, residual = _entered(self.before, pending, residual)
        late, pending = self.aside(hidden, step), self.body(hidden, step)
        for one in self.second:
            pending, residual = one(pending, residual, step)
        return late if pending is None else pending + late, residual

    def again(self, build: LayerBuilder, later: int) -> _Aside:
        """Return the same for another pass; arguments as of `SelfAttention.again`."""
        other = copy(self)
        other.second = [one.again(build, later) for one in self.second]
        return other


def _entered(before: Norm | None, pending: Pending, residual: Tensor) -> tuple[Tensor, Tensor]:
    """Return what a body reads, and the residual with what was pending."""
    if pending is not None and before is not None:
        return before.add(pending, residual)
    if pending is not None:
        residual = residual + pending
    return residual if before is None else before(residual), residual
