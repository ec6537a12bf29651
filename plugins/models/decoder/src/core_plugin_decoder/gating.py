"""Gates and mixing between attention and its output projection.

Shapes: T tokens of a step; D hidden size; H heads of a rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.layers import Activation, Rope
    from core.api.layers import Attention as Attend
    from core_plugin_decoder.description import Attention, Decoder, Mix


class OutputGate:
    """`act(gate(hidden))`: a factor of each number that attention gives."""

    def __init__(self, given: Attention, build: LayerBuilder, hidden_size: int, path: str) -> None:
        name, size = given.gate or "", given.heads * given.head_dim
        units = {name: given.head_dim}
        self.project = build.merged_linear(hidden_size, {name: size}, path, shard="out", units=units)
        self.activation = gate_activation(given, build, path)

    def __call__(self, hidden: Tensor) -> Tensor:
        """`(T, D) -> (T, H * head_dim)`."""
        return self.activation(self.project(hidden))


def gate_activation(given: Attention, build: LayerBuilder, path: str) -> Activation:
    """Return what makes a gate's numbers factors; `path` is that of the attention."""
    made = given.gate_activation
    return build.activation(made) if isinstance(made, str) else made(build, path)


class Mixer:
    """Parameters of the gate of a layer's later passes."""

    def __init__(self, mix: Mix, given: Attention, build: LayerBuilder, decoder: Decoder, index: int) -> None:
        path = decoder.path(mix.gate.format(index))
        self.weight = build.parameter(f"{path}.weight", (given.heads, given.head_dim), shard="out", unit=1)
        self.bias = build.parameter(f"{path}.bias", (given.heads,), shard="out", unit=1)

    def __call__(self, q: Tensor) -> Tensor:
        """Return the gate of each head, `(T, H, head_dim) -> (T, H, 1)`."""
        return ((q * self.weight()).sum(-1) + self.bias()).sigmoid().unsqueeze(-1)


class MixedAttention:
    """Attention of a later pass: to the keys and values of the first pass, and to its own within a window.

    Args:
        first: Attention of the first pass, which has written its keys and values in this step already.
        own: Attention of this pass.
    """

    def __init__(self, mixer: Mixer, first: Attend, own: Attend) -> None:
        self.mixer, self.first, self.own = mixer, first, own

    def __call__(
        self, q: Tensor, k: Tensor | None, v: Tensor | None, step: StepInputs, rope: Rope | None = None
    ) -> Tensor:
        """Return `(T, H * head_dim)`; arguments as of `core.api.layers.Attention`."""
        if rope is not None:
            q, turned = rope(step.positions, q, q[:, :0] if k is None else k)
            k = None if k is None else turned
        near = self.own(q, k, v, step).view(q.shape)
        far = self.first(q, None, None, step).view(q.shape)
        return (near + (far - near) * self.mixer(q)).flatten(1)
