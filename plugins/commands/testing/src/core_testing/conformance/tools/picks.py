"""Paged caches of latents and of index keys driven by hand: a backend's picker and picked attention by definition.

Pickers are held against scores. What layers attend to is chosen at random: they show by themselves that they see what
they are told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from core.api.attention import AttentionPlan, KVLayout, LatentSite, Picks, PickSite, TakesPicks
from core_testing.conformance.outcome import require
from core_testing.conformance.tools.devices import dtype_of
from core_testing.conformance.tools.latents import LatentBench, LatentGeometry
from core_testing.conformance.tools.paged import Row, Step
from core_testing.conformance.tools.plain import index_scores, not_picked


@dataclass(frozen=True, slots=True)
class PickGeometry(LatentGeometry):
    """Sizes of picked latent layers, and of the picker beside them.

    Attributes:
        index_heads, index_dim: Of the picker; its KV layer is behind those of the layers.
        picks: Most positions that a query sees.
    """

    index_heads: int = 16
    index_dim: int = 24
    picks: int = 20

    def latents(self) -> list[LatentSite]:
        """Return the layers."""
        scale = (self.key_dim + self.rope_dim) ** -0.5
        sizes = (self.heads, self.latent_dim, self.rope_dim, self.key_dim, self.value_dim)
        return [LatentSite(layer, *sizes, scale, self.picks) for layer in range(self.layers)]

    def picker(self) -> PickSite:
        """Return the picker, whose scores are about 1."""
        scale = (self.index_heads * self.index_dim) ** -0.5
        return PickSite(self.layers, self.index_heads, self.index_dim, scale, self.picks)


class PickBench(LatentBench):
    """Sequences of random queries, latents and index keys, some tokens of each per step.

    Behind what a row's `q` and `k` have for each layer are index queries `(length, index_heads, index_dim)` and index
    keys `(length, 1, index_dim)`; its `v` are the positions that each query is told to see, `(length, picks)`, and the
    weights of the index heads, `(length, index_heads)`.
    """

    geometry: PickGeometry

    def _make_layers(self) -> None:
        super()._make_layers()
        self.picker_site = self.geometry.picker()
        self.picker = cast(Picks, self.backend).picker(self.picker_site)

    def _layouts(self) -> list[KVLayout]:
        return [*super()._layouts(), cast(Picks, self.backend).picker_layout(self.picker_site)]

    def _attend(self, step: Step, layer: int, plan: AttentionPlan) -> Tensor:
        chosen, weights = (self._values(step, place) for place in range(2))
        if layer == self.picker_site.layer:
            self.picker.write(self.inputs(step, layer, "k")[:, 0], self.caches[layer], plan)
            found = self.picker.forward(self.inputs(step, layer, "q"), weights, self.caches[layer], plan)
            if found is not None:
                return found
            longest, most = step.batch.max_seq_len, self.geometry.picks
            require(longest <= most, f"the picker returns None for a row of {longest} tokens, more than {most}")
            return self._everything(step)
        self._write_latents(step, layer, plan)
        q, q_rope = self._queries(step, layer)
        attend = cast(TakesPicks, self.latent_layers[layer]).forward_picked
        return attend(q, q_rope, self.caches[layer], plan, chosen.to(torch.int32))

    def _compare(self, step: Step, layer: int, output: Tensor) -> None:
        if layer != self.picker_site.layer:
            super()._compare(step, layer, output)
            return
        shape = (step.batch.slots.shape[0], self.geometry.picks)
        what = f"the picker gives {tuple(output.shape)} {output.dtype}"
        require(tuple(output.shape) == shape and output.dtype == torch.int32, f"{what}, due is {shape} int32")
        begin, allowed = 0, self.geometry.tolerance(self.device)
        for row, start, count in step.work:
            scores = self._scores(self.rows[row], start, count)
            for at, found in enumerate(output[begin : begin + count].cpu()):
                self._compare_query(found, scores[at], start + at, allowed)
            begin += count

    def _compare_query(self, found: Tensor, scores: Tensor, position: int, allowed: float) -> None:
        """Hold the positions of one query against `scores (length,)`."""
        picked, where = found[found != -1].long(), f"a query at position {position} ({self.geometry})"
        due = min(self.geometry.picks, position + 1)
        require(len(picked) == len(set(picked.tolist())) == due, f"{where} has {picked.tolist()}, due are {due}")
        inside = bool(((picked >= 0) & (picked <= position)).all())
        require(inside, f"{where} is to see what is behind it, or no position: {picked.tolist()}")
        worst, least = float(scores[picked].min()), float(scores.topk(due).values.min())
        require(worst >= least - allowed, f"{where} is to see a score of {worst:.3g}; the best {due} reach {least:.3g}")

    def _scores(self, row: Row, start: int, count: int) -> Tensor:
        place, end = self.picker_site.layer, start + count
        keys = row.k[place][:end, 0]
        return index_scores(row.q[place][start:end], row.v[1][start:end], keys, self.picker_site)

    def _everything(self, step: Step) -> Tensor:
        """Return that each query sees all."""
        places = torch.arange(self.geometry.picks, dtype=torch.int32)
        positions = torch.cat([torch.arange(start, start + count) for _, start, count in step.work])
        return torch.where(places[None] <= positions[:, None], places, -1).int()

    def _hidden(self, row: Row, start: int, count: int) -> Tensor:
        end = start + count
        return super()._hidden(row, start, count) | not_picked(row.v[0][start:end], end)

    def _values(self, step: Step, place: int) -> Tensor:
        parts = [self.rows[row].v[place][start : start + count] for row, start, count in step.work]
        return torch.cat(parts).to(self.device)

    def _row(self, length: int, rng: torch.Generator) -> Row:
        geometry, row = self.geometry, super()._row(length, rng)
        dtype, stored = dtype_of(geometry.dtype), dtype_of(geometry.kv_dtype)
        queries = torch.randn(length, geometry.index_heads, geometry.index_dim, generator=rng).to(dtype)
        keys = torch.randn(length, 1, geometry.index_dim, generator=rng).to(dtype)
        keys = keys.to(stored) if stored.is_floating_point else keys
        weights = torch.randn(length, geometry.index_heads, generator=rng)
        chosen = torch.full((length, geometry.picks), -1)
        for position in range(length):
            due = min(geometry.picks, position + 1)
            chosen[position, :due] = torch.randperm(position + 1, generator=rng)[:due]
        return Row([*row.q, queries.float()], [*row.k, keys.float()], [chosen, weights])
