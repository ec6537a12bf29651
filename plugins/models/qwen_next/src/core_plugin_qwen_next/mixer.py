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
        share = sizes.shared(build)
        own = sizes.own(share)
        self.rule = DeltaRule(build, sizes, path, ["conv1d"], "norm")
        self.parts = (own.channels, own.values, own.heads, own.heads)
        products = _grouped(sizes) if grouped else _apart(sizes) if share.ranks == 1 else _divided(sizes)
        self.linears = [
            build.merged_linear(
                hidden_size,
                parts,
                path,
                shard=share.out,
                units=units,
                fused=fused,
                split="interleaved" if grouped else "halves",
            )
            for fused, parts, units, _ in products
        ]
        self.counts = [count for *_, count in products]
        self.decay = Decay(build, path, (sizes.heads,), share)
        self.view, self.silu = (-1, own.heads, sizes.value_dim), build.activation("silu")
        self.out = build.linear(sizes.values, hidden_size, f"{path}.out_proj", shard=share.into)

    def __call__(self, x: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        mixed, gates, beta, steps = self._projected(x)
        attended = self.rule(mixed, self.decay(steps), beta.float().sigmoid(), step)
        return self.out((attended * self.silu(gates.reshape(self.view))).flatten(1))

    def _projected(self, x: Tensor) -> list[Tensor]:
        """Return queries, keys and values; gates; factors of corrections; steps of the decay: `(T, part)` each."""
        found: list[Tensor] = []
        for linear, count in zip(self.linears, self.counts, strict=True):
            sizes = self.parts[len(found) : len(found) + count]
            found += linear(x).split_with_sizes(sizes, dim=1)
        return found


_Product = tuple[str | None, dict[str, int], dict[str, int], int]
"""The module that holds all parts, their sizes, what stays together of each; how many of `GatedDelta.parts` it is."""


def _grouped(sizes: DeltaSizes) -> list[_Product]:
    wide = {"q": sizes.keys, "k": sizes.keys, "v": sizes.values, "z": sizes.values}
    narrow = {"b": sizes.heads, "a": sizes.heads}
    return [
        (name, parts, {part: size // sizes.key_heads for part, size in parts.items()}, 2)
        for name, parts in (("in_proj_qkvz", wide), ("in_proj_ba", narrow))
    ]


def _divided(sizes: DeltaSizes) -> list[_Product]:
    """Return the parts as ranks divide them: queries, keys and values each by itself."""
    rows = {"q": sizes.keys, "k": sizes.keys, "v": sizes.values}
    units = {"q": sizes.key_dim, "k": sizes.key_dim, "v": sizes.value_dim}
    rest = {"in_proj_z": sizes.values, "in_proj_b": sizes.heads, "in_proj_a": sizes.heads}
    return [("in_proj_qkv", rows, units, 1), (None, rest, {"in_proj_z": sizes.value_dim}, 3)]


def _apart(sizes: DeltaSizes) -> list[_Product]:
    names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
    return [(None, dict(zip(names, (sizes.channels, sizes.values, sizes.heads, sizes.heads))), {}, 4)]
