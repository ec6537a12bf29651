"""Layers of Dory: attention or an MLP, towards whose result the residual moves.

The published formula has rows of length 1. Here they are `sqrt(D)` times as long, with a mean square of 1, so that
bringing them to their length is an RMS norm. What else that changes is in factors of parameters, and in `eps`.

Shapes: T tokens of a step; D hidden size; H heads of a rank; F size between the linears of an MLP, on a rank.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from core_plugin_decoder import MLP, Attention
from core_plugin_decoder.gating import OutputGate
from core_plugin_decoder.mlp import FeedForward

if TYPE_CHECKING:
    from collections.abc import Callable

    from core_plugin_decoder import Decoder
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.layers import Attention as Attend
    from core_plugin_dory.family import Scales

EPS = 1e-6
"""Added to the square of a length."""


class DoryLayer:
    """`norm(kept + rate * (norm(body(hidden)) - kept))`, where `kept` is `norm(hidden)`; `(T, D) -> (T, D)`."""

    def __init__(self, decoder: Decoder, build: LayerBuilder, index: int, scales: Scales) -> None:
        path, layer, hidden = decoder.layer_path(index), decoder.layers[index], decoder.hidden_size
        self.body: DoryAttention | Callable[[Tensor, StepInputs], Tensor]
        if isinstance(layer.attention, Attention):
            name, inner = "attn_alpha", layer.attention.heads * layer.attention.head_dim
            self.body = DoryAttention(layer.attention, build, hidden, path, index, scales)
        elif isinstance(layer.mlp, MLP):
            name, inner = "mlp_alpha", layer.mlp.size
            given = replace(layer.mlp, activation=lambda build, path: ScaledGate(build, path, inner))
            mlp = FeedForward(given, build, hidden, path)
            self.body = lambda hidden, step: mlp(hidden)
        else:
            raise TypeError(f"layer {index} has neither attention nor an MLP")
        self.norm = build.rms_norm(hidden, EPS, path, weight=False)
        # The body projects a row of `inner` numbers, `sqrt(inner)` times as long as that of the formula.
        self.added = build.rms_norm(hidden, EPS * inner / hidden, path, weight=False)
        self.rate = build.parameter(f"{path}.{name}", (hidden,), read=lambda stored: (stored * scales.rate).abs())

    def again(self, later: int) -> DoryLayer:
        """Return the same layer with keys and values of its own, those of the layer `later` layers behind."""
        other = copy(self)
        if isinstance(self.body, DoryAttention):
            other.body = self.body.again(later)
        return other

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """Return what the next layer reads."""
        kept, added = self.norm(hidden), self.added(self.body(hidden, step))
        return self.norm(kept + (added - kept) * self.rate())


class DoryAttention:
    """Attention with norms behind the rotation, and a gate and a norm before the output projection."""

    def __init__(
        self, given: Attention, build: LayerBuilder, hidden: int, layer: str, index: int, scales: Scales
    ) -> None:
        path, size, share = f"{layer}.{given.name}", given.head_dim, build.heads(given.heads, given.kv_heads)
        queries, keys = given.heads * size, given.kv_heads * size
        self.heads, self.size, self.index = [share.heads, share.kv_heads, share.kv_heads], size, index
        parts = dict(zip(given.projections, (queries, keys, keys), strict=True))
        self.project = build.merged_linear(hidden, parts, path, shard="out", units=dict.fromkeys(parts, size))
        self.rope = None if given.rope is None else build.rope(given.rope)
        self.norm = build.rms_norm(size, EPS * hidden / size, path, weight=False)
        # Both queries and keys are multiplied by the stored factor.
        self.factor = build.parameter(
            f"{path}.sqk", (queries,), shard="out", unit=size, read=lambda stored: (stored * scales.usual).square()
        )
        gate = replace(given, gate_activation=lambda build, path: ScaledSigmoid(given, build, path, scales, hidden))
        self.gate = OutputGate(gate, build, hidden, path)
        self.inner = build.rms_norm(queries, EPS * hidden / queries, path, shard="out", unit=size, weight=False)
        self.output = build.linear(queries, hidden, f"{path}.{given.output}", shard="in")
        self.build, self.given, self.path = build, given, path
        self.attend = self._attend(index)

    def again(self, later: int) -> DoryAttention:
        """Return the same with keys and values of its own, as `DoryLayer.again`."""
        other = copy(self)
        other.attend = self._attend(self.index + later)
        return other

    def _attend(self, layer: int) -> Attend:
        """Return attention with the keys and values of a layer."""
        heads, kv_heads, _ = self.heads
        return self.build.attention(
            layer,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=self.size,
            scale=self.given.scale,
            window=self.given.window,
            prefix=self.path,
        )

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        joined = self.project(hidden).view(-1, sum(self.heads), self.size)
        q, k, v = joined.split_with_sizes(self.heads, dim=1)
        if self.rope is not None:
            q, k = self.rope(step.positions, q, k)
        q = self.norm(q) * self.factor().view(-1, self.size)
        attended = self.attend(q, self.norm(k), v, step)
        return self.output(self.inner(attended * self.gate(hidden)))


class ScaledSigmoid:
    """The sigmoid of gates times what a parameter says; `(T, H * head_dim)`."""

    def __init__(self, given: Attention, build: LayerBuilder, path: str, scales: Scales, hidden: int) -> None:
        self.sigmoid, share = build.activation("sigmoid"), scales.gate / hidden**0.5
        self.factor = build.parameter(
            f"{path}.s_gate",
            (given.heads * given.head_dim,),
            shard="out",
            unit=given.head_dim,
            read=lambda stored: stored.square() * share,
        )

    def __call__(self, x: Tensor) -> Tensor:
        """Return the gates."""
        return self.sigmoid(x * self.factor())


class ScaledGate:
    """`norm(silu(gate * factor) * (up * factor))`, `(T, 2 * F) -> (T, F)`; gate and up have a factor each."""

    def __init__(self, build: LayerBuilder, path: str, size: int) -> None:
        # The formula's further factor, the square root of D, is in the hidden states already.
        self.gate, self.up = (build.parameter(f"{path}.suv_{name}", (size,), shard="out") for name in ("gate", "up"))
        self.silu = build.activation("silu")
        self.norm = build.rms_norm(size, EPS / size, path, shard="out", weight=False)

    def __call__(self, x: Tensor) -> Tensor:
        """Return what is projected back."""
        gate, up = x.chunk(2, dim=-1)
        return self.norm(self.silu(gate * self.gate()) * (up * self.up()))
