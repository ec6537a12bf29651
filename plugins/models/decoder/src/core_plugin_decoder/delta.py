"""Linear attention by delta rules: a head keeps a matrix that decays, and that each token corrects.

Shapes: T tokens of a step; D hidden size; H heads of the values, of a rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core_plugin_decoder.ranks import Share, share_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.layers import Parameter

_EPS = 1e-6
"""Added to the sum of squares of a query or key, by whose root it is divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSizes:
    """Sizes of a delta rule.

    Attributes:
        key_heads, heads: Heads of queries and keys, and of values; each of the former serves as many of the latter.
        key_dim, value_dim: Size of a head of queries and keys, and of one of values.
        width: Tokens that the convolution reads, with the own one.
        eps: Of the norm of the results.
    """

    key_heads: int
    heads: int
    key_dim: int
    value_dim: int
    width: int
    eps: float

    @property
    def keys(self) -> int:
        """Numbers of all heads of queries, or of keys."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Numbers of all heads of values."""
        return self.heads * self.value_dim

    @property
    def channels(self) -> int:
        """Numbers that the convolution reads of a token: queries, keys and values."""
        return 2 * self.keys + self.values

    def shared(self, build: LayerBuilder) -> Share:
        """Return what this rank has of the heads: a key head is on one rank, with all heads that it serves."""
        return share_of(build, self.heads, self.key_heads, self.key_heads)

    def own(self, share: Share) -> DeltaSizes:
        """Return the sizes on this rank."""
        return replace(self, heads=share.heads, key_heads=share.groups)


class DeltaRule:
    """Convolution, normalised queries and keys, the delta rule, and the norm of what each head gives.

    Args:
        sizes: Of all ranks.
        path: Of the layer's module.
        conv: Names of the checkpoint's tensors that are the convolution's weight: of all channels, or one each for
            queries, keys and values, which are then equally many.
        norm: Module of the norm below `path`.
    """

    def __init__(self, build: LayerBuilder, sizes: DeltaSizes, path: str, conv: Sequence[str], norm: str) -> None:
        share = sizes.shared(build)
        self.weight = _taps(build, sizes, [f"{path}.{name}.weight" for name in conv], share)
        sizes = sizes.own(share)
        self.heads, self.key_heads = (-1, sizes.heads, sizes.value_dim), (-1, sizes.key_heads, sizes.key_dim)
        self.parts = (sizes.keys, sizes.keys, sizes.values)
        self.taps = (sizes.channels, sizes.width)
        self.past = build.state(f"{path}.conv", (sizes.channels, sizes.width - 1), dtype="compute")
        self.conv = build.operation("causal_conv", channels=sizes.channels, width=sizes.width)
        # Divided by its length, and then multiplied by the root of its size, is what an RMS norm makes of a vector.
        self.unit = build.rms_norm(sizes.key_dim, _EPS / sizes.key_dim, f"{path}.unit", weight=False)
        self.length = sizes.key_dim**-0.5
        self.matrix = build.state(f"{path}.matrix", (sizes.heads, sizes.key_dim, sizes.value_dim))
        self.attend = build.operation("linear_attention", key_dim=sizes.key_dim, value_dim=sizes.value_dim)
        self.norm = build.rms_norm(sizes.value_dim, sizes.eps, f"{path}.{norm}")

    def __call__(self, mixed: Tensor, decay: Tensor, beta: Tensor, step: StepInputs) -> Tensor:
        """Return `(T, H, value_dim)`.

        Args:
            mixed: Queries, keys and values one behind another, `(T, channels)`.
            decay, beta: As those of `linear_attention`.
        """
        weight = self.weight().view(self.taps)
        q, k, v = self.conv(mixed, weight, None, self.past(step), True).split_with_sizes(self.parts, dim=1)
        q, k = (self.unit(one.reshape(self.key_heads)) for one in (q, k))
        scale = self.length * self.length  # one makes a query a unit vector, one is the scale of attention
        v = v.reshape(self.heads)
        return self.norm(self.attend(q, k * self.length, v, decay, beta, self.matrix(step), scale))


def _taps(build: LayerBuilder, sizes: DeltaSizes, names: Sequence[str], share: Share) -> Parameter:
    """Return the weight of the convolution: of one tensor, or of one each for queries, keys and values."""
    shape = (sizes.channels // len(names), 1, sizes.width)
    if len(names) > 1:
        return build.parameter(names, (len(names), *shape), shard=share.out, axis=1, unit=sizes.key_dim)
    keys, values = (sizes.keys, sizes.key_dim), (sizes.values, sizes.value_dim)
    return build.parameter(names[0], shape, shard=share.out, parts=(keys, keys, values))


class Decay:
    """`-exp(A_log) * softplus(x + dt_bias)`, the logarithm of how much is kept, in float32.

    Args:
        path: Of the module that has both parameters.
        shape: Of `A_log` in the checkpoint, one number for each head.
        share: What this rank has of the heads.
        size: Numbers of one head: each of them decays on its own, and has a bias of its own.
    """

    def __init__(self, build: LayerBuilder, path: str, shape: Sequence[int], share: Share, size: int = 1) -> None:
        heads, out = max(shape), share.out
        axis = list(shape).index(heads)
        self.rate = build.parameter(f"{path}.A_log", shape, shard=out, axis=axis, dtype="float32")
        self.bias = build.parameter(f"{path}.dt_bias", (heads * size,), shard=out, unit=size, dtype="float32")
        self.view, self.each = (-1, share.heads, size), size > 1

    def __call__(self, x: Tensor) -> Tensor:
        """`(T, H * size) -> (T, H, size)`, or `(T, H)` where the size is 1."""
        from torch.nn.functional import softplus

        grown, rate = softplus(x.float() + self.bias()), self.rate().exp()
        if not self.each:
            return (grown * rate.view(-1)).neg()
        return (grown.view(self.view) * rate.view(-1, 1)).neg()
