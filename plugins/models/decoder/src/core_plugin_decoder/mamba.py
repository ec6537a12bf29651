"""The mixer of Mamba as a description says.

Shapes: T tokens of a step; D hidden size; C channels of a rank; N numbers of a channel's state; R rank of the steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import silu, softplus

from core_plugin_decoder.norms import norm
from core_plugin_decoder.ranks import Share, share_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.layers import Linear
    from core_plugin_decoder.statespace import Mamba


class ChannelConv:
    """The convolution of each channel with the tokens before, and its state: `(T, own) -> (T, own)`.

    Args:
        parts: Channels of all ranks, and those that stay together, of each part of what it reads.
        own: Channels of this rank.
        path: Of the mixer.
        share: How ranks divide each part.
        read: What is made of the stored weights, `(own, 1, width)`.
    """

    def __init__(
        self,
        build: LayerBuilder,
        parts: Sequence[tuple[int, int]],
        own: int,
        width: int,
        path: str,
        share: Share,
        *,
        bias: bool,
        read: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        channels = sum(size for size, _ in parts)
        self.weight = build.parameter(
            f"{path}.conv1d.weight", (channels, 1, width), shard=share.out, parts=parts, read=read
        )
        self.bias = None
        if bias:
            self.bias = build.parameter(f"{path}.conv1d.bias", (channels,), shard=share.out, parts=parts)
        self.state = build.state(f"{path}.conv1d", (own, width - 1), dtype="compute")
        self.conv = build.operation("causal_conv", channels=own, width=width)

    def __call__(self, x: Tensor, step: StepInputs) -> Tensor:
        bias = None if self.bias is None else self.bias()
        out: Tensor = self.conv(x, self.weight().squeeze(1), bias, self.state(step), True)
        return out


def projection(
    build: LayerBuilder, hidden_size: int, parts: Mapping[str, tuple[int, int]], path: str, share: Share, bias: bool
) -> Linear:
    """Return `in_proj`, which holds all parts one after another.

    Args:
        parts: Outputs of all ranks of each part, and those that stay together.
    """
    sizes = {name: size for name, (size, _) in parts.items()}
    if share.ranks == 1:
        return build.linear(hidden_size, sum(sizes.values()), f"{path}.in_proj", bias=bias)
    units = {name: unit for name, (_, unit) in parts.items()}
    return build.merged_linear(hidden_size, sizes, path, bias=bias, shard="out", units=units, fused="in_proj")


class MambaMixer:
    """`out(scan(conv(x)) * silu(gate))`."""

    def __init__(self, given: Mamba, build: LayerBuilder, hidden_size: int, path: str) -> None:
        channels, state = given.channels, given.state_dim
        share = share_of(build, channels, channels)
        out, own = share.out, share.heads
        self.channels, self.sizes = own, (given.rank, state, state)
        self.project = projection(
            build, hidden_size, {"x": (channels, 1), "gate": (channels, 1)}, path, share, given.bias
        )
        self.conv = ChannelConv(build, ((channels, 1),), own, given.width, path, share, bias=given.conv_bias)
        # What steps, B and C are made of is the sum over the ranks.
        self.select = build.linear(channels, given.rank + 2 * state, f"{path}.x_proj", shard=share.into)
        self.norms = [norm(one, build, size, path) for one, size in zip(given.norms or (), self.sizes)]
        self.widen = build.linear(given.rank, channels, f"{path}.dt_proj", shard=out)
        # Apart from the linear: steps are sums in float32.
        self.step_bias = build.parameter(f"{path}.dt_proj.bias", (channels,), shard=out, dtype="float32")
        self.a = build.parameter(
            f"{path}.A_log", (channels, state), shard=out, read=lambda log: -log.exp(), dtype="float32"
        )
        self.skip = build.parameter(f"{path}.D", (channels,), shard=out, dtype="float32")
        self.state = build.state(f"{path}.scan", (own, state))
        self.scan = build.operation("selective_scan", channels=own, state_dim=state)
        self.out = build.linear(channels, hidden_size, f"{path}.out_proj", bias=given.bias, shard=share.into)

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        x, gate = self.project(hidden).split_with_sizes((self.channels,) * 2, dim=-1)
        x = self.conv(x, step)
        delta, b, c = self.select(x).split_with_sizes(self.sizes, dim=-1)
        if self.norms:
            delta, b, c = (one(part.contiguous()) for one, part in zip(self.norms, (delta, b, c)))
        delta = softplus(self.widen(delta).float() + self.step_bias())
        found = self.scan(x, delta, self.a(), b, c, self.state(step))
        found = (found.float() + x.float() * self.skip()) * silu(gate.float())
        return self.out(found.to(hidden.dtype))
