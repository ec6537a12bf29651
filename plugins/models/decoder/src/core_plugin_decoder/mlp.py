"""The MLP as a description says. Shapes: T tokens of a step; D hidden size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder
    from core.api.layers import Activation
    from core_plugin_decoder.description import MLP, MakeActivation


def activation_of(given: str | MakeActivation, build: LayerBuilder, path: str, *, gated: bool) -> Activation:
    """Return an activation by its name, or as a family makes it for the module at `path`."""
    if not isinstance(given, str):
        return given(build, path)
    return build.gated_activation(given) if gated else build.activation(given)


class FeedForward:
    """`down(act(gate(x)) * up(x))`, or `down(act(up(x)))`."""

    def __init__(self, given: MLP, build: LayerBuilder, hidden_size: int, layer: str) -> None:
        path = f"{layer}.{given.name}" if given.name else layer
        outputs: Literal["out"] | None = "out" if given.divided else None
        inputs: Literal["in"] | None = "in" if given.divided else None
        if given.gate is None:
            self.widen = build.linear(hidden_size, given.size, f"{path}.{given.up}", bias=given.bias, shard=outputs)
        else:
            parts = {given.gate: given.size, given.up: given.size}
            self.widen = build.merged_linear(
                hidden_size, parts, path, bias=given.bias, shard=outputs, fused=given.fused
            )
        self.activation = activation_of(given.activation, build, path, gated=given.gate is not None)
        self.down = build.linear(given.size, hidden_size, f"{path}.{given.down}", bias=given.down_bias, shard=inputs)

    def __call__(self, x: Tensor) -> Tensor:
        """`(T, D) -> (T, D)`."""
        return self.down(self.activation(self.widen(x)))
