"""How attention and MLP of a layer add to the residual.

A layer hands on what it adds (`pending`) apart from the residual: the norm of the next one adds it up on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_decoder.attention import SelfAttention
from core_plugin_decoder.description import MLP
from core_plugin_decoder.mixture import MixtureOfExperts
from core_plugin_decoder.mlp import FeedForward
from core_plugin_decoder.norms import norm

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.models import Embedding, Norm
    from core_plugin_decoder.description import Decoder, Layer, Mixture

    Pending = Tensor | None
    Sublayer = Callable[[Pending, Tensor, StepInputs], tuple[Pending, Tensor]]
    MLPLike = FeedForward | MixtureOfExperts
    Body = Callable[[Tensor, StepInputs], Tensor]


def sublayers(
    decoder: Decoder, layer: Layer, build: LayerBuilder, index: int, growth: Embedding | None
) -> list[Sublayer]:
    """Return what a layer does, in order: each takes `(pending, residual, step)` and returns the first two."""
    path = decoder.layer_path(index)
    given = (layer.before_attention, layer.after_attention, layer.before_mlp, layer.after_mlp)
    norms = [None if one is None else norm(one, build, decoder.hidden_size, path) for one in given]
    attention = SelfAttention(decoder, layer.attention, build, index, growth)
    mlp = _feed_forward(layer.mlp, build, decoder.hidden_size, path)

    def feed(hidden: Tensor, step: StepInputs) -> Tensor:
        return mlp(hidden)

    if layer.parallel:
        return [_Parallel(norms[0], norms[2], attention, mlp, layer.scale)]
    if layer.beside is not None:
        before = None if layer.before_beside is None else norm(layer.before_beside, build, decoder.hidden_size, path)
        beside = FeedForward(layer.beside, build, decoder.hidden_size, path)
        return [_Around(norms[0], attention, norms[2], mlp, before, beside)]
    adds = _Closing if layer.closing else _Adding
    return [adds(norms[0], attention, norms[1], layer.scale), adds(norms[2], feed, norms[3], layer.scale)]


def _feed_forward(given: MLP | Mixture, build: LayerBuilder, hidden_size: int, layer: str) -> MLPLike:
    if isinstance(given, MLP):
        return FeedForward(given, build, hidden_size, layer)
    return MixtureOfExperts(given, build, hidden_size, layer)


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


class _Parallel:
    """`residual + scale * (attention(before(residual)) + mlp(before_mlp(residual)))`."""

    def __init__(
        self,
        before: Norm | None,
        before_mlp: Norm | None,
        attention: SelfAttention,
        mlp: MLPLike,
        scale: float,
    ) -> None:
        self.before, self.before_mlp, self.attention, self.mlp, self.scale = before, before_mlp, attention, mlp, scale

    def __call__(self, pending: Pending, residual: Tensor, step: StepInputs) -> tuple[Pending, Tensor]:
        hidden, residual = _entered(self.before, pending, residual)
        other = hidden if self.before_mlp is None else self.before_mlp(residual)
        out = self.attention(hidden, step) + self.mlp(other)
        return out if self.scale == 1.0 else out * self.scale, residual


class _Around:
    """`inner + beside(before_beside(inner)) + mlp(before_mlp(residual))`.

    `inner` is `residual + body(before(residual))`.
    """

    def __init__(
        self,
        before: Norm | None,
        body: Body,
        before_mlp: Norm | None,
        mlp: MLPLike,
        before_beside: Norm | None,
        beside: FeedForward,
    ) -> None:
        self.before, self.body, self.before_mlp, self.mlp = before, body, before_mlp, mlp
        self.before_beside, self.beside = before_beside, beside

    def __call__(self, pending: Pending, residual: Tensor, step: StepInputs) -> tuple[Pending, Tensor]:
        hidden, residual = _entered(self.before, pending, residual)
        out = self.mlp(residual if self.before_mlp is None else self.before_mlp(residual))
        other, residual = _entered(self.before_beside, self.body(hidden, step), residual)
        return out + self.beside(other), residual


def _entered(before: Norm | None, pending: Pending, residual: Tensor) -> tuple[Tensor, Tensor]:
    """Return what a body reads, and the residual with what was pending."""
    if pending is not None and before is not None:
        return before.add(pending, residual)
    if pending is not None:
        residual = residual + pending
    return residual if before is None else before(residual), residual
