"""Roles of layers: what a rank has of each, and where that lies in the tensors of the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple

from core.api.errors import CheckpointError
from core.api.layers import Heads
from core.api.quantization import LayerSite
from core.api.ranks import Ranks
from core.layers.cuts import Cut, Cuts

if TYPE_CHECKING:
    from core.api.layers import Shard

_FEWER = "Use fewer ranks, or a number of ranks that divides it."


class Placed(NamedTuple):
    """A layer of one rank.

    Attributes:
        site: Its sizes on this rank.
        cuts: What of the checkpoint's tensors it takes.
    """

    site: LayerSite
    cuts: Cuts


class Fused(NamedTuple):
    """The one module that stores all parts of a layer.

    Attributes:
        units: Part -> outputs that stay together.
    """

    name: str
    split: Literal["halves", "interleaved"]
    units: Mapping[str, int]


class Roles:
    """Divides layers among ranks."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def heads(self, num_heads: int, num_kv_heads: int) -> Heads:
        """Return the heads of this rank. Raises `CheckpointError` CORE-M183."""
        size = self.ranks.size
        if num_heads % size or (num_kv_heads % size and size % num_kv_heads):
            raise CheckpointError(
                "CORE-M183",
                f"{num_heads} heads with {num_kv_heads} heads of keys and values cannot be divided among {size} ranks.",
                hint="Ranks must divide the heads, and divide the heads of keys and values or be a multiple of them.",
            )
        heads = num_heads // size
        return Heads(heads, max(1, num_kv_heads // size), self.ranks.rank * heads)

    def linear(self, prefix: str, in_features: int, out_features: int, shard: Shard | None, *, bias: bool) -> Placed:
        """Return a layer of one part; the bias of one that is cut along its inputs is added by the first rank."""
        if shard == "in":
            inputs, bias = self.share(in_features, f"inputs of '{prefix}'"), bias and self.ranks.rank == 0
        else:
            inputs = Cut.all(in_features)
        whole = shard != "out"
        outputs = Cut.all(out_features) if whole else self.share(out_features, f"outputs of '{prefix}'")
        site = LayerSite("linear", prefix, inputs.size, [("", outputs.size)], bias)
        return Placed(site, Cuts((outputs,), inputs))

    def merged(
        self,
        prefix: str,
        in_features: int,
        parts: Mapping[str, Cut],
        *,
        bias: bool,
        fused: Fused | None = None,
    ) -> Placed:
        """Return a layer of several parts.

        Args:
            parts: Part -> what this rank has of it, as the method `parts` says.
        """
        site = LayerSite("linear", prefix, in_features, [(name, cut.size) for name, cut in parts.items()], bias)
        if fused is None:
            return Placed(site, Cuts(tuple(parts.values()), Cut.all(in_features)))
        kind = LayerSite(site.kind, prefix, in_features, site.parts, bias, fused=fused.name, split=fused.split)
        units = [fused.units.get(name, 1) for name in parts]
        cuts = _fused(list(parts.values()), units if fused.split == "interleaved" else None, prefix)
        return Placed(kind, Cuts(cuts, Cut.all(in_features)))

    def parts(
        self, prefix: str, parts: Mapping[str, int], units: Mapping[str, int], shard: Literal["out"] | None
    ) -> dict[str, Cut]:
        """Return what this rank has of every part."""
        if shard is None:
            return {name: Cut.all(size) for name, size in parts.items()}
        return {
            name: self.share(size, f"outputs of '{prefix}.{name}'", units.get(name)) for name, size in parts.items()
        }

    def vocabulary(
        self, kind: str, prefix: str, rows: int, hidden: int, shard: Literal["out"] | None, *, bias: bool = False
    ) -> Placed:
        """Return an embedding or an output projection: equally many rows for all ranks, fewer for the last."""
        ranks = Ranks() if shard is None else self.ranks
        most = -(-rows // ranks.size)
        if most * (ranks.size - 1) >= rows:
            raise _indivisible(f"{rows} rows of '{prefix}'", ranks.size)
        cut = Cut(rows, ranks.rank * most, min(most, rows - ranks.rank * most))
        return Placed(LayerSite(kind, prefix, hidden, [("", cut.size)], bias), Cuts((cut,), Cut.all(hidden)))

    def experts(self, prefix: str, size: int, fused: Literal["halves", "interleaved"] | None) -> tuple[Cut, Cut]:
        """Return what this rank has of the inner size of experts, and of the outputs of a module that reads hidden
        states: one part, or gate and up one after the other, or by turns. Raises `CheckpointError` CORE-M184."""
        inner = self.share(size, f"numbers inside the experts of '{prefix}'")
        if fused is None:
            return inner, inner
        if inner.complete:
            return inner, Cut.all(2 * size)
        if fused == "interleaved":
            return inner, Cut(2 * size, 2 * inner.start, 2 * inner.count)
        return inner, Cut(2 * size, inner.start, inner.count, size, 2)

    def share(self, size: int, what: str, unit: int | None = None) -> Cut:
        """Return this rank's share of `size` outputs or inputs.

        Args:
            unit: Elements that stay together; ranks have copies where they exceed the units.

        Raises:
            CheckpointError: CORE-M184, they cannot be divided.
        """
        ranks, units = self.ranks.size, size // (unit or 1)
        if size % (unit or 1):
            raise ValueError(f"{size} {what} are not units of {unit}")
        if units % ranks == 0:
            return Cut(size, self.ranks.rank * (size // ranks), size // ranks)
        if unit is None or ranks % units:
            raise _indivisible(f"{size} {what}" + (f" in units of {unit}" if unit else ""), ranks)
        return Cut(size, self.ranks.rank * units // ranks * unit, unit)


def whole(site: LayerSite) -> Cuts:
    """Return the cuts of a layer that no rank divides."""
    outputs = [Cut.all(rows) for _, rows in site.parts]
    if site.fused is not None:
        outputs = list(_fused(outputs, [1] * len(outputs) if site.split == "interleaved" else None, site.prefix))
    return Cuts(tuple(outputs), Cut.all(site.in_features))


def _fused(parts: Sequence[Cut], units: Sequence[int] | None, prefix: str) -> tuple[Cut, ...]:
    """Return cuts of parts as cuts of the tensor that has them one after another or, with `units`, by turns.

    There are as many turns as the part with the fewest units has; in each of them come equally many outputs of a part.
    """
    sizes = [part.whole for part in parts]
    turns = 1 if units is None else min(size // unit for size, unit in zip(sizes, units, strict=True))
    if any(size % turns for size in sizes):
        raise ValueError(f"the parts of '{prefix}' have {sizes} outputs, which cannot come in {turns} equal turns")
    starts = accumulate((size // turns for size in sizes[:-1]), initial=0)
    return tuple(_in_turns(part, start, sum(sizes), turns, prefix) for part, start in zip(parts, starts, strict=True))


def _in_turns(part: Cut, offset: int, total: int, turns: int, prefix: str) -> Cut:
    each, turn = part.whole // turns, total // turns
    first, inside = divmod(part.start, each)
    start = first * turn + offset + inside
    if inside + part.count <= each:
        return Cut(total, start, part.count)
    if inside or part.count % each:
        raise _indivisible(f"{part.whole} outputs of '{prefix}', {each} in each turn,", part.whole // part.count)
    return Cut(total, start, each, turn, part.count // each)


def _indivisible(what: str, ranks: int) -> CheckpointError:
    return CheckpointError("CORE-M184", f"{what} cannot be divided among {ranks} ranks.", hint=_FEWER)
