"""The state spaces of PLaMo 2: heads as those of Mamba-2, and projections behind the convolution as in Mamba.

Shapes: T tokens of a step; D hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core_plugin_decoder.mamba import ChannelConv
from core_plugin_decoder.ranks import share_of
from torch.nn.functional import silu, softplus

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of the mixer.

    Attributes:
        heads, head_dim: Of the values; their product is the inner size.
        state_dim: Size of B and C, which all heads read.
        rank: Size of what the steps of all heads are made of.
        width: Tokens that the convolution reads, with the own one.
        eps: Of the norms of B, C, and of what steps are made of.
    """

    heads: int
    head_dim: int
    state_dim: int
    rank: int
    width: int
    eps: float


class StateSpace:
    """`out((attend(C, B, steps * values) + D * values) * silu(gate))`; a convolution gives the values."""

    def __init__(self, build: LayerBuilder, hidden_size: int, path: str, sizes: Sizes) -> None:
        channels, state, heads = sizes.heads * sizes.head_dim, sizes.state_dim, (sizes.heads,)
        share = share_of(build, sizes.heads, sizes.heads)
        own, out = share.heads * sizes.head_dim, share.out
        parts = dict.fromkeys(("gate", "values"), channels)
        units = dict.fromkeys(parts, sizes.head_dim)
        # The checkpoint has gate and values of the first head, then those of the second.
        self.project = build.merged_linear(
            hidden_size, parts, path, shard=out, fused="in_proj", units=units, split="interleaved"
        )
        self.heads, self.channels, self.sizes = (-1, share.heads, sizes.head_dim), own, (state, state, sizes.rank)
        self.conv = ChannelConv(build, ((channels, sizes.head_dim),), own, sizes.width, path, share, bias=False)
        # What steps, B and C are made of is the sum over the ranks.
        self.select = build.linear(channels, sum(self.sizes), f"{path}.bcdt_proj", shard=share.into)
        self.norms = [
            _Norm(build, size, sizes.eps, f"{path}.{name}_norm")
            for name, size in zip(("B", "C", "dt"), self.sizes, strict=True)
        ]
        self.widen = build.linear(sizes.rank, sizes.heads, f"{path}.dt_proj", shard=out)
        self.step_bias = build.parameter(f"{path}.dt_bias", heads, shard=out, dtype="float32")
        self.a = build.parameter(f"{path}.A_log", heads, shard=out, read=lambda log: -log.exp(), dtype="float32")
        self.skip = build.parameter(f"{path}.D", heads, shard=out, dtype="float32")
        self.state = build.state(f"{path}.scan", (share.heads, state, sizes.head_dim))
        self.attend = build.operation("linear_attention", key_dim=state, value_dim=sizes.head_dim)
        self.out = build.linear(channels, hidden_size, f"{path}.out_proj", shard=share.into)

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        gate, values = self.project(hidden).split_with_sizes((self.channels,) * 2, dim=-1)
        values = self.conv(values, step)
        parts = self.select(values).split_with_sizes(self.sizes, dim=-1)
        b, c, delta = (norm(part.contiguous()) for norm, part in zip(self.norms, parts, strict=True))
        delta = softplus(self.widen(delta).float() + self.step_bias())
        values = values.view(self.heads)
        weighed = (values.float() * delta.unsqueeze(-1)).to(hidden.dtype)
        # All heads read the same: they are the heads of one key.
        found = self.attend(c.unsqueeze(1), b.unsqueeze(1), weighed, delta * self.a(), None, self.state(step), 1.0)
        found = (found.float() + values.float() * self.skip().unsqueeze(-1)).flatten(1)
        return self.out((found * silu(gate.float())).to(hidden.dtype))


class _Norm:
    """An RMS norm whose weight is a parameter of the mixer, `<path>_weight`."""

    def __init__(self, build: LayerBuilder, size: int, eps: float, path: str) -> None:
        self._norm = build.rms_norm(size, eps, path, weight=False)
        self._weight = build.parameter(f"{path}_weight", (size,))

    def __call__(self, x: Tensor) -> Tensor:
        return self._norm(x) * self._weight()
