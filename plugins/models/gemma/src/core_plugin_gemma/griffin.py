"""The recurrent block of Griffin. Shapes: T tokens of a step; D hidden size; W channels of a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_decoder.ranks import Share, share_of

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs

_SHARPNESS = 8.0
"""How much a gate that is open lets decay, in units of a channel's own rate."""


class RecurrentBlock:
    """`linear_out(recurrence(conv(linear_x(x))) * act(linear_y(x)))`.

    Args:
        channels: W of all ranks.
        heads: Equal parts of the channels; the gates of one see nothing of the others, and ranks divide them.
        width: Tokens that the convolution reads, with the own one.
    """

    def __init__(
        self, build: LayerBuilder, hidden_size: int, path: str, channels: int, heads: int, width: int, activation: str
    ) -> None:
        share = share_of(build, heads, heads)
        out, own = share.out, channels // share.ranks
        names = {"linear_y": channels, "linear_x": channels}
        self.parts = (own, own)
        self.project = build.merged_linear(hidden_size, names, path, bias=True, shard=out)
        self.activation = build.activation(activation)
        self.weight = build.parameter(f"{path}.conv_1d.weight", (channels, 1, width), shard=out)
        self.bias = build.parameter(f"{path}.conv_1d.bias", (channels,), shard=out)
        self.past = build.state(f"{path}.conv", (own, width - 1), dtype="compute")
        self.conv = build.operation("causal_conv", channels=own, width=width)
        self.recurrence = GatedRecurrence(build, f"{path}.rg_lru", channels, heads, share)
        self.out = build.linear(channels, hidden_size, f"{path}.linear_out", bias=True, shard=share.into)

    def __call__(self, x: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        y, x = self.project(x).split_with_sizes(self.parts, dim=1)
        x = self.conv(x, self.weight().squeeze(1), self.bias(), self.past(step), False)
        return self.out(self.recurrence(x, step) * self.activation(y))


class GatedRecurrence:
    """The real-gated linear recurrent unit: gates say what each channel takes, and how much it keeps."""

    def __init__(self, build: LayerBuilder, path: str, channels: int, heads: int, share: Share) -> None:
        own, names = channels // share.ranks, {"input_gate": channels, "recurrent_gate": channels}
        self.gates = build.block_linear(channels, names, path, heads, bias=True, shard=share.out)
        self.rate = build.parameter(f"{path}.recurrent_param", (channels,), shard=share.out, dtype="float32")
        self.first = build.by_position(1, _first)
        self.state = build.state(path, (own,))
        self.recur = build.operation("gated_recurrence", channels=own)

    def __call__(self, x: Tensor, step: StepInputs) -> Tensor:
        """`(T, W) -> (T, W)`."""
        from torch.nn.functional import softplus

        taken, kept = self.gates(x).sigmoid().split_with_sizes(self.gates.splits, dim=1)
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
