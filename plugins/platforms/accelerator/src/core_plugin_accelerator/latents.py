"""Latent attention by libraries of kernels, in the absorbed form: what backends over them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.api.attention import AttentionContext, KVLayout, LatentSite
from core_plugin_accelerator.paged import PagedPlan, entries


def latent_layout(site: LatentSite, ctx: AttentionContext) -> KVLayout:
    """Return blocks of `(block_size, latent_dim + rope_dim)`: latents, with the rotated key behind each."""
    return KVLayout((ctx.block_size, site.latent_dim + site.rope_dim), ctx.kv_dtype)


@dataclass(frozen=True, slots=True)
class Queries:
    """Some of a step's queries, each as a row of its own with all that it sees in the cache.

    Attributes:
        tokens: Which of the step's.
        tables: `(queries, blocks)` int32 on the device, the blocks of each.
        lengths: `(queries,)` int32 on the device, how many tokens each sees.
        total: Sum of these.
    """

    tokens: slice
    tables: Tensor
    lengths: Tensor
    total: int


def queries_of(paged: PagedPlan, most: int) -> list[Queries]:
    """Return the queries of a step, at most so many together; nothing waits for the device."""
    tables, lengths, seen = paged.tables, paged.lengths, paged.seq_lens
    if not paged.single:
        counts, ends = paged.counts, np.cumsum(paged.counts)
        place = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
        seen = np.repeat(paged.seq_lens - counts, counts) + place + 1
        taken = paged.starts.diff()
        rows, places = entries(taken, len(seen))
        tables = tables.index_select(0, rows)
        lengths = ((lengths - taken).index_select(0, rows) + places + 1).to(torch.int32)
    slices = [slice(begin, min(begin + most, len(seen))) for begin in range(0, len(seen), most)]
    return [Queries(one, tables[one], lengths[one], int(seen[one].sum())) for one in slices]


class PagedLatent(ABC):
    """Latent attention of one layer: queries are moved to the latents, and what they gather of these becomes values.

    Plans have `slots`, as in `BatchView`.
    """

    def __init__(self, site: LatentSite, ctx: AttentionContext) -> None:
        self._site, self._ctx = site, ctx
        self._key = self._value = torch.empty(0)

    def use_up(self, key: Tensor, value: Tensor) -> None:
        """Use `key (heads, key_dim, latent_dim)` and `value (heads, latent_dim, value_dim)` from now on."""
        self._key, self._value = key, value

    def write(self, latent: Tensor, rope_key: Tensor, kv: Tensor, plan: Any) -> None:
        """Store `latent (tokens, latent_dim)` and `rope_key (tokens, rope_dim)` at the plan's slots."""
        kept = torch.cat((latent, rope_key), dim=-1).to(kv.dtype)
        kv.view(-1, kv.shape[-1]).index_copy_(0, plan.slots, kept)

    def forward(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: Any) -> Tensor:
        """`q (tokens, heads, key_dim)`, `q_rope (tokens, heads, rope_dim)` -> `(tokens, heads * value_dim)`."""
        site = self._site
        if not len(q):
            return q.new_empty(0, site.num_heads * site.value_dim)
        moved = torch.bmm(q.transpose(0, 1), self._key).transpose(0, 1)
        found = self._attend(moved, q_rope, kv, plan)
        return torch.bmm(found.transpose(0, 1), self._value).transpose(0, 1).flatten(1)

    @abstractmethod
    def _attend(self, moved: Tensor, q_rope: Tensor, kv: Tensor, plan: Any) -> Tensor:
        """Attend to latents; there is at least one token.

        Args:
            moved: `(tokens, heads, latent_dim)`, the parts of the queries that meet latents.
            q_rope: `(tokens, heads, rope_dim)`, those that meet rotated keys.
            kv: As `latent_layout` says.

        Returns:
            `(tokens, heads, latent_dim)`.
        """
