"""The mixer of Mamba-2 as a description says.

Shapes: T tokens of a step; D hidden size; H heads of values, G groups, the heads of B and C, of a rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import silu, softplus

from core_plugin_decoder.mamba import ChannelConv, projection
from core_plugin_decoder.norms import divided_norm
from core_plugin_decoder.ranks import share_of

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core_plugin_decoder.statespace import Mamba2


class Mamba2Mixer:
    """`out(norm((attend(C, B, steps * values) + D * values) * silu(gate)))`; a convolution gives values, B and C."""

    def __init__(self, given: Mamba2, build: LayerBuilder, hidden_size: int, path: str) -> None:
        self.given = given
        # A group of the norm that lies on several ranks, but not on all, has nothing that sums it up.
        groups = 1 if given.norm is None else given.norm.groups
        share = share_of(build, given.heads, given.groups, *(() if groups == 1 else (groups,)))
        self.heads, self.groups, out = share.heads, share.groups, share.out
        own, shared = share.heads * given.head_dim, share.groups * given.state_dim
        self.mixed = (own, shared, shared)
        self.parts = (own, sum(self.mixed), share.heads)
        values, both = (given.channels, given.head_dim), (given.groups * given.state_dim, given.state_dim)
        parts = {"gate": values, "values": values, "b": both, "c": both, "steps": (given.heads, 1)}
        self.project = projection(build, hidden_size, parts, path, share, given.bias)
        self.conv = ChannelConv(
            build,
            (values, both, both),
            sum(self.mixed),
            given.width,
            path,
            share,
            bias=given.conv_bias,
            read=self._scaled,
        )
        heads = (given.heads,)
        self.step_bias = build.parameter(f"{path}.dt_bias", heads, shard=out, dtype="float32")
        self.a = build.parameter(f"{path}.A_log", heads, shard=out, read=lambda log: -log.exp(), dtype="float32")
        self.skip = build.parameter(f"{path}.D", heads, shard=out, dtype="float32")
        self.state = build.state(f"{path}.scan", (share.heads, given.state_dim, given.head_dim))
        self.attend = build.operation("linear_attention", key_dim=given.state_dim, value_dim=given.head_dim)
        self.norm = None
        if given.norm is not None:
            self.norm = divided_norm(given.norm, build, given.channels, path, share, given.head_dim)
        self.out = build.linear(
            given.channels, hidden_size, f"{path}.out_proj", bias=given.output_bias, shard=share.into
        )

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        given, dtype = self.given, hidden.dtype
        x = hidden if given.input_scale == 1.0 else hidden * given.input_scale
        gate, mixed, delta = self.project(x).split_with_sizes(self.parts, dim=-1)
        values, b, c = self.conv(mixed, step).split_with_sizes(self.mixed, dim=-1)
        values = values.reshape(-1, self.heads, given.head_dim)
        b, c = (one.reshape(-1, self.groups, given.state_dim) for one in (b, c))
        delta = self._steps(delta)
        weighed = (values.float() * delta.unsqueeze(-1)).to(dtype)
        found = self.attend(c, b, weighed, delta * self.a(), None, self.state(step), 1.0)
        found = found.float() + values.float() * self.skip().unsqueeze(-1)
        out = self.out(self._gated(found.flatten(1), gate, dtype))
        return out if given.output_scale == 1.0 else out * given.output_scale

    def _steps(self, delta: Tensor) -> Tensor:
        """Return the step of each head, `(T, H)` float32."""
        factor, (least, most) = self.given.factors[4], self.given.limits
        delta = delta.float()
        delta = softplus((delta if factor == 1.0 else delta * factor) + self.step_bias())
        # Steps are positive anyway.
        return delta if (least, most) == (0.0, float("inf")) else delta.clamp(least, most)

    def _gated(self, found: Tensor, gate: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what goes into the output projection, `(T, H * head_dim)`; `found` is float32."""
        factor, gate = self.given.factors[0], gate.float()
        gate = silu(gate if factor == 1.0 else gate * factor)
        if self.norm is None:
            return (found * gate).to(dtype)
        if self.given.norm_first:
            return (self.norm(found.to(dtype)).float() * gate).to(dtype)
        return self.norm((found * gate).to(dtype))

    def _scaled(self, weight: Tensor) -> Tensor:
        """Return the weight of the convolution with the factors of what it reads."""
        _, *factors, _ = self.given.factors
        if factors == [1.0] * 3:
            return weight
        parts = weight.split_with_sizes(self.mixed, dim=0)
        return torch.cat([part * factor for part, factor in zip(parts, factors)])
