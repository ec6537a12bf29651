"""The mixer of Mamba as a description says.

Shapes: T tokens of a step; D hidden size; C channels; N numbers of a channel's state; R rank of the steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import silu, softplus

from core_plugin_decoder.norms import norm

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core_plugin_decoder.statespace import Mamba


class ChannelConv:
    """The convolution of each channel with the tokens before, and its state: `(T, channels) -> (T, channels)`.

    Args:
        path: Of the mixer.
        read: What is made of the stored weights, `(channels, 1, width)`.
    """

    def __init__(
        self,
        build: LayerBuilder,
        channels: int,
        width: int,
        path: str,
        *,
        bias: bool,
        read: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.weight = build.parameter(f"{path}.conv1d.weight", (channels, 1, width), read=read)
        self.bias = build.parameter(f"{path}.conv1d.bias", (channels,)) if bias else None
        self.state = build.state(f"{path}.conv1d", (channels, width - 1), dtype="compute")
        self.conv = build.operation("causal_conv", channels=channels, width=width)

    def __call__(self, x: Tensor, step: StepInputs) -> Tensor:
        bias = None if self.bias is None else self.bias()
        out: Tensor = self.conv(x, self.weight().squeeze(1), bias, self.state(step), True)
        return out


class MambaMixer:
    """`out(scan(conv(x)) * silu(gate))`."""

    def __init__(self, given: Mamba, build: LayerBuilder, hidden_size: int, path: str) -> None:
        channels, state = given.channels, given.state_dim
        self.channels, self.sizes = channels, (given.rank, state, state)
        self.project = build.linear(hidden_size, 2 * channels, f"{path}.in_proj", bias=given.bias)
        self.conv = ChannelConv(build, channels, given.width, path, bias=given.conv_bias)
        self.select = build.linear(channels, given.rank + 2 * state, f"{path}.x_proj")
        self.norms = [norm(one, build, size, path) for one, size in zip(given.norms or (), self.sizes)]
        self.widen = build.linear(given.rank, channels, f"{path}.dt_proj")
        # Apart from the linear: steps are sums in float32.
        self.step_bias = build.parameter(f"{path}.dt_proj.bias", (channels,), dtype="float32")
        self.a = build.parameter(f"{path}.A_log", (channels, state), read=lambda log: -log.exp(), dtype="float32")
        self.skip = build.parameter(f"{path}.D", (channels,), dtype="float32")
        self.state = build.state(f"{path}.scan", (channels, state))
        self.scan = build.operation("selective_scan", channels=channels, state_dim=state)
        self.out = build.linear(channels, hidden_size, f"{path}.out_proj", bias=given.bias)

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
