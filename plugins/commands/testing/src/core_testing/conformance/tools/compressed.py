"""Paged caches of compressed entries driven by hand: attention to entries, and their picker, by definition.

Pickers are held against scores. What the first layer attends to is chosen at random, the second sees all that there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from core.api.attention import AttentionPlan, Compressed, CompressedSite, KVLayout, Picks, PickSite
from core_testing.conformance.outcome import require
from core_testing.conformance.tools.devices import dtype_of, largest_difference
from core_testing.conformance.tools.paged import Geometry, PagedBench, Row, Step
from core_testing.conformance.tools.plain_compressed import attend_to_entries, entry_scores, unpicked, unseen_entries


@dataclass(frozen=True, slots=True)
class CompressedGeometry(Geometry):
    """Sizes of compressed layers, and of the picker beside them.

    Attributes:
        ratio: Tokens of an entry of the first layer, which sees what is picked, and of the picker.
        long_ratio: Of the second.
        index_heads, index_dim, picks: Of the picker.
    """

    ratio: int = 4
    long_ratio: int = 8
    index_heads: int = 16
    index_dim: int = 24
    picks: int = 6

    def compressed(self) -> list[CompressedSite]:
        """Return the layers."""
        sizes = (self.heads, self.head_dim, self.head_dim**-0.5)
        return [CompressedSite(0, *sizes, self.ratio, self.picks), CompressedSite(1, *sizes, self.long_ratio)]

    def picker(self) -> PickSite:
        """Return the picker, whose scores are about 1."""
        scale = (self.index_heads * self.index_dim) ** -0.5
        return PickSite(2, self.index_heads, self.index_dim, scale, self.picks, self.ratio)


class CompressedBench(PagedBench):
    """Sequences of random queries and entries, some tokens of each per step.

    Every token of a row has an entry in `k`, `(length, 1, size)`: those that end no entry are to be left out. Behind
    what the layers have are index queries and index keys; its `v` are the entries that each query is told to see,
    `(length, picks)`, and the weights of the index heads, `(length, index_heads)`.
    """

    geometry: CompressedGeometry

    def _make_layers(self) -> None:
        self.compressed_sites, self.picker_site = self.geometry.compressed(), self.geometry.picker()
        backend = cast(Compressed, self.backend)
        self.compressed_layers = [backend.compressed(site) for site in self.compressed_sites]
        self.picker = cast(Picks, self.backend).picker(self.picker_site)

    def _layouts(self) -> list[KVLayout]:
        layouts = [cast(Compressed, self.backend).compressed_layout(site) for site in self.compressed_sites]
        return [*layouts, cast(Picks, self.backend).picker_layout(self.picker_site)]

    def _attend(self, step: Step, layer: int, plan: AttentionPlan) -> Any:
        """Return what a layer gives, a pair; or what is picked."""
        q, entries = self.inputs(step, layer, "q"), self.inputs(step, layer, "k")[:, 0]
        cache, (chosen, weights) = self.caches[layer], (self._values(step, place) for place in range(2))
        if layer == self.picker_site.layer:
            self.picker.write(entries, cache, plan)
            return self.picker.forward(q, weights, cache, plan)
        attention = self.compressed_layers[layer]
        attention.write(entries, cache, plan)
        return attention.forward(q, cache, plan, chosen.int() if self.compressed_sites[layer].picks else None)

    def _compare(self, step: Step, layer: int, output: Any) -> None:
        begin = 0
        if layer == self.picker_site.layer and output is None:
            longest, most = step.batch.max_seq_len // self.geometry.ratio, self.geometry.picks
            require(longest <= most, f"the picker returns None for a row of {longest} entries, more than {most}")
            return
        for row, start, count in step.work:
            of = slice(begin, begin + count)
            if layer == self.picker_site.layer:
                self._compare_picks(self.rows[row], start, output[of].cpu())
            else:
                self._compare_row(self.rows[row], layer, start, [one[of].cpu() for one in output])
            begin += count

    def _compare_row(self, row: Row, layer: int, start: int, found: list[Tensor]) -> None:
        site, end = self.compressed_sites[layer], start + len(found[0])
        where = f"row of {end} tokens, {end - start} of them new, layer {layer} ({self.geometry})"
        float32 = all(one.dtype == torch.float32 for one in found)
        require(float32, f"{where}: it gives {found[0].dtype} and {found[1].dtype}, due is float32")
        entries = row.k[layer][:end, 0][site.ratio - 1 :: site.ratio]
        hidden = unseen_entries(end, end - start, site.ratio, len(entries))
        if site.picks:
            hidden |= unpicked(row.v[0][start:end], len(entries))
        due = attend_to_entries(row.q[layer][start:end], entries, hidden, site.scale)
        none = due[1] == -torch.inf
        require(torch.equal(found[1] == -torch.inf, none), f"{where}: -inf is due where a query sees no entry, alone")
        pairs = [(found[0], due[0]), (found[1].masked_fill(none, 0.0), due[1].masked_fill(none, 0.0))]
        allowed = self.geometry.tolerance(self.device)
        for name, (one, expected) in zip(("an output", "a sum"), pairs, strict=True):
            error = largest_difference(one, expected)
            require(error <= allowed, f"{where}: {name} is off by {error:.2g}, allowed {allowed:g}")

    def _compare_picks(self, row: Row, start: int, found: Tensor) -> None:
        end, site, allowed = start + len(found), self.picker_site, self.geometry.tolerance(self.device)
        keys = row.k[site.layer][:end, 0][site.ratio - 1 :: site.ratio]
        scores = entry_scores(row.q[site.layer][start:end], row.v[1][start:end], keys, site, end)
        for position, (picked, known) in enumerate(zip(found, scores, strict=True), start):
            mine, seen = picked[picked != -1].long(), (position + 1) // site.ratio
            due, where = min(site.picks, seen), f"a query at position {position} ({self.geometry})"
            require(len(mine) == len(set(mine.tolist())) == due, f"{where} has {mine.tolist()}, due are {due}")
            require(bool(((mine >= 0) & (mine < seen)).all()), f"{where} sees {seen} entries, and has {mine.tolist()}")
            if due:
                worst, least = float(known[mine].min()), float(known.topk(due).values.min())
                good = worst >= least - allowed
                require(good, f"{where} is to see a score of {worst:.3g}; the best {due} reach {least:.3g}")

    def _values(self, step: Step, place: int) -> Tensor:
        parts = [self.rows[row].v[place][start : start + count] for row, start, count in step.work]
        return torch.cat(parts).to(self.device)

    def _row(self, length: int, rng: torch.Generator) -> Row:
        g = self.geometry
        dtype, stored = dtype_of(g.dtype), dtype_of(g.kv_dtype)

        def made(*shape: int) -> Tensor:
            return torch.randn(length, *shape, generator=rng).to(dtype)

        def kept(size: int) -> Tensor:
            one = made(1, size)
            return (one.to(stored) if stored.is_floating_point else one).float()

        queries = [made(g.heads, g.head_dim).float() for _ in range(2)] + [made(g.index_heads, g.index_dim).float()]
        chosen = torch.full((length, g.picks), -1)
        for position in range(length):
            seen = (position + 1) // g.ratio
            due = min(g.picks, seen)
            chosen[position, :due] = torch.randperm(seen, generator=rng)[:due]
        weights = torch.randn(length, g.index_heads, generator=rng)
        return Row(queries, [*(kept(g.head_dim) for _ in range(2)), kept(g.index_dim)], [chosen, weights])
