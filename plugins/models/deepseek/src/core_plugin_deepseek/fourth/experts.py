"""The experts of one layer. Shapes: T tokens of a step; D hidden size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import silu

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core_plugin_deepseek.fourth.reading import Fourth


class ClampedSwiGLU:
    """`silu(gate) * up`, the gate at most `limit`, and `up` from minus to plus it."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def __call__(self, x: Tensor) -> Tensor:
        """`(rows, 2 * size)` as `[gate, up]` -> `(rows, size)`."""
        gate, up = x.chunk(2, dim=1)
        return silu(gate.clamp(max=self.limit)) * up.clamp(-self.limit, self.limit)


class FourthExperts:
    """Experts that scores choose or a table names, and the one that all tokens share."""

    def __init__(self, build: LayerBuilder, given: Fourth, path: str, *, table: bool) -> None:
        hidden, size, routing = given.hidden_size, given.expert_size, given.routing
        self.activation = ClampedSwiGLU(given.limit)
        if table:
            named = (f"{path}.gate.tid2eid", given.vocab_size)
            self.router = build.router(hidden, given.experts, routing, f"{path}.gate", table=named)
        else:
            chosen = routing.replace(correction=True)
            self.router = build.router(hidden, given.experts, chosen, f"{path}.gate", correction=f"{path}.gate.bias")
        self.experts = build.experts(
            given.experts, hidden, size, f"{path}.experts", self.activation, parts=("w1", "w3"), down="w2"
        )
        self.widen = build.merged_linear(hidden, {"w1": size, "w3": size}, f"{path}.shared_experts")
        self.narrow = build.linear(size, hidden, f"{path}.shared_experts.w2")

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        weights, ids = self.router(hidden, step.token_ids)
        return self.experts(hidden, weights, ids) + self.narrow(self.activation(self.widen(hidden)))
