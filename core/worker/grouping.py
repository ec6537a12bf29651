"""Cache groups: which layers share a block table, and which share a buffer.

A group is a set of layers that keep the same past. Every group has equally many places; the layers at one place of all
groups share one buffer of blocks, so that a block id fits any group and all groups take blocks from one pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.api.attention import KVLayout
from core.api.kvspecs import KVSpec

MOST_PADDING = 0.1
"""Buffers that no layer of some group uses, as a share of the layers."""


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers with one block table.

    Attributes:
        spec: What they keep of the past.
        layers: Places of these layers among those that were grouped, by buffer.
    """

    spec: KVSpec
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CacheGroups:
    """The groups of a model.

    Attributes:
        buffers: Layout of each buffer; a group with fewer layers leaves the last ones unused.
        why: Why there is a single group although layers keep different pasts; empty otherwise.
    """

    groups: tuple[CacheGroup, ...]
    buffers: tuple[KVLayout, ...]
    why: str = ""

    @property
    def specs(self) -> tuple[KVSpec, ...]:
        """KV layout of the layers of each group."""
        return tuple(group.spec for group in self.groups)

    def describe(self) -> str:
        """Return a few words for the start-up table; nothing where a single group is a matter of course."""
        if len(self.groups) > 1:
            return f"{len(self.groups)} groups of {len(self.buffers)} layers"
        return f"one block table: {self.why}" if self.why else ""

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block over all buffers."""
        return sum(layout.bytes_per_block for layout in self.buffers)


def grouped(layers: Sequence[tuple[KVSpec, KVLayout]]) -> CacheGroups:
    """Return layers in groups of one spec and equally many places; in one group if their blocks differ in size."""
    by_spec: dict[KVSpec, list[int]] = {}
    for place, (spec, _) in enumerate(layers):
        by_spec.setdefault(spec, []).append(place)
    if len(by_spec) < 2:
        return together(layers)
    sizes = {(layout.bytes_per_block, layout.dtype) for _, layout in layers}
    if len(sizes) > 1:
        return together(layers, "the blocks of its layers differ in size")
    width = best_width([len(places) for places in by_spec.values()])
    # First what keeps all tokens: whoever looks at one group alone finds every token there.
    ordered = sorted(by_spec.items(), key=lambda one: one[0] != KVSpec())
    groups = [
        CacheGroup(spec, tuple(places[begin : begin + width]))
        for spec, places in ordered
        for begin in range(0, len(places), width)
    ]
    return CacheGroups(tuple(groups), tuple(layers[0][1] for _ in range(width)))


def together(layers: Sequence[tuple[KVSpec, KVLayout]], why: str = "") -> CacheGroups:
    """Return all layers as one group, which keeps what any of them reads."""
    group = CacheGroup(_joined([spec for spec, _ in layers]), tuple(range(len(layers))))
    return CacheGroups((group,), tuple(layout for _, layout in layers), why)


def best_width(counts: Sequence[int]) -> int:
    """Return how many layers a group should have, for as many layers of each spec as `counts` says.

    The one that makes the fewest groups with little padding; of several the one with the least.
    """
    total = sum(counts)

    def made(width: int) -> tuple[int, int]:
        groups = sum(-(-count // width) for count in counts)
        return groups, groups * width

    fitting = [width for width in range(1, max(counts) + 1) if made(width)[1] - total <= MOST_PADDING * total]
    return min(fitting, key=made)


def _joined(specs: Sequence[KVSpec]) -> KVSpec:
    """Return a spec that keeps what any of `specs` does."""
    kinds = {spec.kind for spec in specs}
    if len(set(specs)) == 1:
        return specs[0]
    if kinds == {"sliding"}:
        return KVSpec("sliding", max(spec.window or 1 for spec in specs))
    return KVSpec()
