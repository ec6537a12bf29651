"""A paged cache of latents driven by hand: a backend's latent attention beside attention by definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from core.api.attention import AttentionPlan, KVLayout, Latent, LatentSite
from core_testing.conformance.tools.devices import dtype_of
from core_testing.conformance.tools.paged import Geometry, PagedBench, Row, Step


@dataclass(frozen=True, slots=True)
class LatentGeometry(Geometry):
    """Sizes of latent layers; those of keys and values of `Geometry` count for nothing.

    Attributes:
        layers: How many layers share a plan.
    """

    latent_dim: int = 48
    rope_dim: int = 16
    key_dim: int = 32
    value_dim: int = 24
    layers: int = 1

    @property
    def latents_kept(self) -> frozenset[tuple[int, int]]:
        """Value of `AttentionRequest.latents` for this geometry."""
        return frozenset({(self.latent_dim, self.rope_dim)})

    def latents(self) -> list[LatentSite]:
        """Return the layers."""
        scale = (self.key_dim + self.rope_dim) ** -0.5
        sizes = (self.heads, self.latent_dim, self.rope_dim, self.key_dim, self.value_dim)
        return [LatentSite(layer, *sizes, scale) for layer in range(self.layers)]


class LatentBench(PagedBench):
    """Sequences of random queries and latents, some tokens of each per step.

    A row's `q` are queries with the rotated part behind, `(length, heads, key_dim + rope_dim)`; its `k` are latents
    with the rotated key behind, `(length, 1, latent_dim + rope_dim)`; it has no `v`.
    """

    geometry: LatentGeometry

    def use_up(self, seed: int) -> None:
        """Give every layer up-projections of its own, in the compute dtype: others for each seed."""
        rng, dtype = torch.Generator().manual_seed(seed), dtype_of(self.geometry.dtype)
        self.ups = []
        for site, layer in zip(self.latent_sites, self.latent_layers, strict=True):
            key = torch.randn(site.num_heads, site.key_dim, site.latent_dim, generator=rng)
            value = torch.randn(site.num_heads, site.latent_dim, site.value_dim, generator=rng)
            pair = [(one * site.latent_dim**-0.5).to(dtype) for one in (key, value)]
            layer.use_up(*(one.to(self.device) for one in pair))
            self.ups.append([one.float() for one in pair])

    def _make_layers(self) -> None:
        latent = cast(Latent, self.backend)
        self.latent_sites = self.geometry.latents()
        self.latent_layers = [latent.latent(site) for site in self.latent_sites]
        self.use_up(1)

    def _layouts(self) -> list[KVLayout]:
        return [cast(Latent, self.backend).latent_layout(site) for site in self.latent_sites]

    def _attend(self, step: Step, layer: int, plan: AttentionPlan) -> Tensor:
        self._write_latents(step, layer, plan)
        return self.latent_layers[layer].forward(*self._queries(step, layer), self.caches[layer], plan)

    def _write_latents(self, step: Step, layer: int, plan: AttentionPlan) -> None:
        kept = self.inputs(step, layer, "k")[:, 0]
        latent, rotated = kept.split_with_sizes((self.geometry.latent_dim, self.geometry.rope_dim), dim=-1)
        self.latent_layers[layer].write(latent, rotated, self.caches[layer], plan)

    def _queries(self, step: Step, layer: int) -> tuple[Tensor, Tensor]:
        """Return the queries of a step, and their rotated part."""
        sizes = (self.geometry.key_dim, self.geometry.rope_dim)
        q, q_rope = self.inputs(step, layer, "q").split_with_sizes(sizes, dim=-1)
        return q, q_rope

    def _dense(self, row: Row, layer: int, start: int, count: int) -> Tensor:
        site, (key, value) = self.latent_sites[layer], self.ups[layer]
        length = start + count
        latent, rotated = row.k[layer][:length, 0].split_with_sizes((site.latent_dim, site.rope_dim), dim=-1)
        own = torch.einsum("hkl,pl->hpk", key, latent)
        keys = torch.cat((own, rotated.expand(len(own), -1, -1)), dim=-1)
        scores = torch.einsum("qhd,hpd->hqp", row.q[layer][start:length], keys) * site.scale
        shares = scores.masked_fill(self._hidden(row, start, count), -torch.inf).softmax(-1)
        return torch.einsum("hqp,hpv->qhv", shares, torch.einsum("pl,hlv->hpv", latent, value))

    def _hidden(self, row: Row, start: int, count: int) -> Tensor:
        """Return which positions the tokens from `start` on do not see, `(count, start + count)` bool."""
        return torch.arange(start + count)[None] > torch.arange(start, start + count)[:, None]

    def _row(self, length: int, rng: torch.Generator) -> Row:
        geometry, stored = self.geometry, dtype_of(self.geometry.kv_dtype)

        def values(*shape: int) -> list[Tensor]:
            made = [torch.randn(length, *shape, generator=rng) for _ in range(geometry.layers)]
            return [one.to(dtype_of(geometry.dtype)) for one in made]

        queries = values(geometry.heads, geometry.key_dim + geometry.rope_dim)
        kept = values(1, geometry.latent_dim + geometry.rope_dim)
        # How a cache of integers is scaled is the backend's own business.
        kept = [one.to(stored) if stored.is_floating_point else one for one in kept]
        return Row([one.float() for one in queries], [one.float() for one in kept], [])
