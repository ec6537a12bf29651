"""The recurrent block of Griffin. Shapes: T tokens of a step; D hidden size; W channels of the recurrence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs

_SHARPNESS = 8.0
"""How much a gate that is open lets decay, in units of a channel's own rate."""


class RecurrentBlock:
    """`linear_out(recurrence(conv(linear_x(x))) * act(linear_y(x)))`.

    Args:
        channels: W.
        heads: Equal parts of the channels; the gates of one see nothing of the others.
        width: Tokens that the convolution reads, with the own one.
    """

    def __init__(
        self, build: LayerBuilder, hidden_size: int, path: str, channels: int, heads: int, width: int, activation: str
    ) -> None:
        self.parts = (channels, channels)
        self.project = build.merged_linear(
            hidden_size, dict(zip(("linear_y", "linear_x"), self.parts)), path, bias=True
        )
        self.activation = build.activation(activation)
        self.weight = build.parameter(f"{path}.conv_1d.weight", (channels, 1, width))
        self.bias = build.parameter(f"{path}.conv_1d.bias", (channels,))
        self.past = build.state(f"{path}.conv", (channels, width - 1), dtype="compute")
        self.conv = build.operation("causal_conv", channels=channels, width=width)
        self.recurrence = GatedRecurrence(build, f"{path}.rg_lru", channels, heads)
        self.out = build.linear(channels, hidden_size, f"{path}.linear_out", bias=True)

    def __call__(self, x: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        y, x = self.project(x).split_with_sizes(self.parts, dim=1)
        x = self.conv(x, self.weight().squeeze(1), self.bias(), self.past(step), False)
        return self.out(self.recurrence(x, step) * self.activation(y))


class GatedRecurrence:
    """The real-gated linear recurrent unit: gates say what each channel takes, and how much it keeps."""

    def __init__(self, build: LayerBuilder, path: str, channels: int, heads: int) -> None:
        size = channels // heads
        self.parts, self.halves = (size,) * heads, (size, size)
        names = {"input_gate": size, "recurrent_gate": size}
        self.gates = [build.merged_linear(size, names, f"{path}.{head}", bias=True) for head in range(heads)]
        self.rate = build.parameter(f"{path}.recurrent_param", (channels,), dtype="float32")
        self.first = build.by_position(1, _first)
        self.state = build.state(path, (channels,))
        self.recur = build.operation("gated_recurrence", channels=channels)

    def __call__(self, x: Tensor, step: StepInputs) -> Tensor:
        """`(T, W) -> (T, W)`."""
        from torch import cat
        from torch.nn.functional import softplus

        gates = [gate(part.contiguous()) for gate, part in zip(self.gates, x.split_with_sizes(self.parts, dim=1))]
        pairs = [gate.split_with_sizes(self.halves, dim=1) for gate in gates]
        taken, kept = (cat(some, dim=1).sigmoid() for some in zip(*pairs, strict=True))
        decay = kept.float() * softplus(self.rate()) * -_SHARPNESS
        # What comes in is weighed so that the sum keeps its size; a request's first token is the whole sum.
        share, first = (1.0 - (decay * 2.0).exp()).sqrt(), self.first(step.positions).float()
        weighed = x * taken * (share + (1.0 - share) * first).to(x.dtype)
        found: Tensor = self.recur(weighed, decay, self.state(step))
        return found


def _first(count: int) -> Tensor:
    """Return 1 for the first position and 0 for the others, `(count, 1)`."""
    import torch

    return (torch.arange(count) == 0).float().unsqueeze(1)
