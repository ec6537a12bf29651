"""Mixtures of experts as a description says. Shapes: T tokens of a step; D hidden size; k experts of a token."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core_plugin_decoder.mlp import FeedForward, activation_of

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder
    from core.api.experts import Router
    from core.api.layers import Linear
    from core_plugin_decoder.description import Mixture


class MixtureOfExperts:
    """Sum of a token's experts, weighed by the router, and of a shared MLP if there is one."""

    def __init__(self, given: Mixture, build: LayerBuilder, hidden_size: int, layer: str) -> None:
        self.router = _router(given, build, hidden_size, layer)
        self.weighs_input = given.weighs_input
        self.real = given.experts
        self.add_identities = build.operation("add_identities") if given.identities else None
        prefix = given.path(layer, given.module)
        choices = given.experts + given.identities
        self.leave = build.tap("experts", prefix, given.routing.top_k, size=choices, dtype="int32")
        self.narrow, self.widen = _around(given, build, hidden_size, layer)
        self.experts = build.experts(
            given.experts,
            given.latent or hidden_size,
            given.size,
            prefix,
            activation_of(given.activation, build, prefix, gated=given.fused is not None or len(given.parts) > 1),
            parts=given.parts,
            down=given.down,
            fused=given.fused,
            bias=given.bias,
        )
        self.shared = self.gate = None
        if given.shared is not None:
            shared = replace(given.shared, name=given.path("", given.shared.name))
            self.shared = FeedForward(shared, build, hidden_size, layer)
        if given.shared_gate is not None:
            self.gate = build.linear(hidden_size, 1, given.path(layer, given.shared_gate))
            self.sigmoid = build.activation("sigmoid")

    def __call__(self, x: Tensor) -> Tensor:
        """`(T, D) -> (T, D)`."""
        weights, ids = self.router(x)
        self.leave(ids)
        read = x if self.narrow is None else self.narrow(x)
        # Numbers of identities are behind those of the experts, which they add nothing to.
        out = self._of_weighed(read, weights, ids) if self.weighs_input else self.experts(read, weights, ids)
        if self.add_identities is not None:
            out = self.add_identities(out, read, weights, ids, self.real)
        if self.widen is not None:
            out = self.widen(out)
        if self.shared is None:
            return out
        shared = self.shared(x)
        return out + (shared if self.gate is None else self.sigmoid(self.gate(x)) * shared)

    def _of_weighed(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """Return the sum of what experts make of `x` times their weights: one expert of each token after another."""
        alone = weights.new_ones(len(weights), 1)
        factors = weights.to(x.dtype)
        out = self.experts(x * factors[:, :1], alone, ids[:, :1].contiguous())
        for place in range(1, ids.shape[1]):
            chosen = ids[:, place : place + 1].contiguous()
            out = out + self.experts(x * factors[:, place : place + 1], alone, chosen)
        return out


def _around(given: Mixture, build: LayerBuilder, hidden_size: int, layer: str) -> tuple[Linear | None, Linear | None]:
    """Return the linears before and behind the experts."""
    if given.latent is None:
        return None, None
    narrow = build.linear(hidden_size, given.latent, given.path(layer, given.narrow), bias=given.latent_bias)
    return narrow, build.linear(given.latent, hidden_size, given.path(layer, given.widen), bias=given.latent_bias)


def _router(given: Mixture, build: LayerBuilder, hidden_size: int, layer: str) -> Router:
    path = given.path(layer, given.router)
    if given.chooses is not None:
        return given.chooses(build, hidden_size, path)
    correction = given.path(layer, given.correction) if given.correction else ""
    experts = given.experts + given.identities
    return build.router(hidden_size, experts, given.routing, path, bias=given.router_bias, correction=correction)
