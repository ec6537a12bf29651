"""Short convolutions: gates around a convolution of each channel with the few tokens before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_decoder.mamba import projection
from core_plugin_decoder.ranks import share_of

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs


class ShortConv:
    """`out(c * conv(b * x))`, where `b`, `c` and `x` are three projections of the hidden states.

    Args:
        width: Tokens that the convolution reads, with the own one.
        bias: Whether linears and convolution have one.
    """

    def __init__(self, build: LayerBuilder, hidden_size: int, path: str, width: int, bias: bool) -> None:
        share = share_of(build, hidden_size, hidden_size)
        own, out = share.heads, share.out
        self.size = own
        parts = dict.fromkeys(("b", "c", "x"), (hidden_size, 1))
        self.project = projection(build, hidden_size, parts, path, share, bias)
        self.out = build.linear(hidden_size, hidden_size, f"{path}.out_proj", bias=bias, shard=share.into)
        self.weight = build.parameter(f"{path}.conv.weight", (hidden_size, 1, width), shard=out)
        self.bias = build.parameter(f"{path}.conv.bias", (hidden_size,), shard=out) if bias else None
        self.state = build.state(f"{path}.conv", (own, width - 1), dtype="compute")
        self.conv = build.operation("causal_conv", channels=own, width=width)

    def __call__(self, x: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        b, c, x = self.project(x).split_with_sizes((self.size,) * 3, dim=-1)
        bias = None if self.bias is None else self.bias()
        return self.out(c * self.conv(b * x, self.weight().squeeze(1), bias, self.state(step), False))
