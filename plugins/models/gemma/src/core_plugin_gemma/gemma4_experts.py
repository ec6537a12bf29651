"""Experts of Gemma 4, beside the MLP of each layer. Torch-free to import.

Shapes: T tokens of a step; D hidden size; E experts, k of a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api import Routing
from core_plugin_gemma.per_layer import activation, norm_eps

if TYPE_CHECKING:
    from collections.abc import Callable

    from core_plugin_decoder import Fields
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.layers import Norm

RULES = tuple((f".experts.{part}", f".experts.{{}}.{part}.weight") for part in ("gate_up_proj", "down_proj"))
"""Checkpoints have the weights of all experts of a layer in two parameters."""


class ScaledRouter:
    """Renormalised shares of the best experts, each times a factor of the expert's own.

    Its logits are of the hidden state behind a norm and times `<path>.scale (D,)`; the factors are
    `<path>.per_expert_scale (E,)`.
    """

    def __init__(self, given: Fields, build: LayerBuilder, path: str) -> None:
        hidden, experts = given.integer("hidden_size"), given.integer("num_experts")
        routing = Routing(top_k=given.integer("top_k_experts", most=experts), renormalize=True)
        self.norm = build.rms_norm(hidden, norm_eps(given), f"{path}.norm", weight=False)
        self.scale, self.root = build.parameter(f"{path}.scale", (hidden,)), hidden**-0.5
        self.choose = build.router(hidden, experts, routing, f"{path}.proj")
        self.factors = build.parameter(f"{path}.per_expert_scale", (experts,), dtype="float32")

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`(T, D) -> weights (T, k) float32, ids (T, k) int32`."""
        weights, ids = self.choose(self.norm(x) * (self.scale() * self.root))
        factors = self.factors().unsqueeze(1).index_select(0, ids.reshape(-1))
        return weights * factors.view(weights.shape), ids


class MLPWithExperts:
    """`residual + after(after_mlp(mlp(before(residual))) + after_experts(experts(before_experts(residual))))`.

    Args:
        before, mlp, after: Of the layer without experts.
    """

    def __init__(
        self,
        given: Fields,
        build: LayerBuilder,
        path: str,
        before: Norm,
        mlp: Callable[[Tensor, StepInputs], Tensor],
        after: Norm,
    ) -> None:
        hidden, eps = given.integer("hidden_size"), norm_eps(given)
        self.before, self.mlp, self.after = before, mlp, after
        names = ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")
        norms = [build.rms_norm(hidden, eps, f"{path}.{name}") for name in names]
        self.after_mlp, self.before_experts, self.after_experts = norms
        self.router = ScaledRouter(given, build, f"{path}.router")
        experts, prefix = given.integer("num_experts"), f"{path}.experts"
        self.leave = build.tap("experts", prefix, given.integer("top_k_experts"), size=experts, dtype="int32")
        self.experts = build.experts(
            experts,
            hidden,
            given.integer("moe_intermediate_size"),
            prefix,
            build.gated_activation(activation(given)),
            parts=("gate_up_proj",),
            fused="halves",
        )

    def __call__(self, pending: Tensor | None, residual: Tensor, step: StepInputs) -> tuple[Tensor, Tensor]:
        """`pending`, what is to be added to the residual first, and `residual (T, D)` -> the same for what follows."""
        if pending is None:
            hidden = self.before(residual)
        else:
            hidden, residual = self.before.add(pending, residual)
        first = self.after_mlp(self.mlp(hidden, step))
        weights, ids = self.router(residual)
        self.leave(ids)
        second = self.after_experts(self.experts(self.before_experts(residual), weights, ids))
        return self.after(first + second), residual
