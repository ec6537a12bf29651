"""Linear attention by a gated delta rule. Shapes: T tokens of a step; D hidden size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_decoder.delta import Decay, DeltaRule

if TYPE_CHECKING:
    from core_plugin_decoder.delta import DeltaSizes
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs


class GatedDelta:
    """Projections, the delta rule with one decay for each head, and gates behind its norm.

    Args:
        grouped: How the checkpoint has the projections: two modules with what belongs to one key head, then the next;
            or one module of queries, keys and values, and one of each other part.
    """

    def __init__(self, build: LayerBuilder, hidden_size: int, path: str, sizes: DeltaSizes, grouped: bool) -> None:
        self.rule = DeltaRule(build, sizes, path, ["conv1d"], "norm")
        self.parts = (sizes.channels, sizes.values, sizes.heads, sizes.heads)
        self.linears = [
            build.merged_linear(hidden_size, parts, path, fused=fused, units=units, split="interleaved")
            if fused is not None
            else build.merged_linear(hidden_size, parts, path)
            for fused, parts, units in (_grouped(sizes) if grouped else _apart(sizes))
        ]
        self.decay = Decay(build, path, (sizes.heads,))
        self.view, self.silu = (-1, sizes.heads, sizes.value_dim), build.activation("silu")
        self.out = build.linear(sizes.values, hidden_size, f"{path}.out_proj")

    def __call__(self, x: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        mixed, gates, beta, steps = self._projected(x)
        attended = self.rule(mixed, self.decay(steps), beta.float().sigmoid(), step)
        return self.out((attended * self.silu(gates.reshape(self.view))).flatten(1))

    def _projected(self, x: Tensor) -> list[Tensor]:
        """Return queries, keys and values; gates; factors of corrections; steps of the decay: `(T, part)` each."""
        if len(self.linears) == 1:
            return list(self.linears[0](x).split_with_sizes(self.parts, dim=1))
        first, second = (linear(x) for linear in self.linears)
        return [*first.split_with_sizes(self.parts[:2], dim=1), *second.split_with_sizes(self.parts[2:], dim=1)]


_Product = tuple[str | None, dict[str, int], dict[str, int]]
"""The module that holds all parts, their sizes, and what belongs to one key head of each."""


def _grouped(sizes: DeltaSizes) -> list[_Product]:
    wide = {"q": sizes.keys, "k": sizes.keys, "v": sizes.values, "z": sizes.values}
    narrow = {"b": sizes.heads, "a": sizes.heads}
    return [
        (name, parts, {part: size // sizes.key_heads for part, size in parts.items()})
        for name, parts in (("in_proj_qkvz", wide), ("in_proj_ba", narrow))
    ]


def _apart(sizes: DeltaSizes) -> list[_Product]:
    names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
    return [(None, dict(zip(names, (sizes.channels, sizes.values, sizes.heads, sizes.heads))), {})]
