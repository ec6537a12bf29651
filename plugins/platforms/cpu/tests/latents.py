"""Sequences of latents, and steps that ask of them."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from core.api.attention import BatchView, LatentSite


def site_of(heads, latent_dim, rope_dim, key_dim, value_dim):
    return LatentSite(0, heads, latent_dim, rope_dim, key_dim, value_dim, (key_dim + rope_dim) ** -0.5)


@dataclass
class Case:
    """Sequences of random latents with the rotated keys behind, and what the last tokens of each ask."""

    rows: tuple[tuple[int, int], ...]
    kept: list[torch.Tensor]
    q: torch.Tensor
    q_rope: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


@cache
def make_case(rows, site, dtype, seed=0, scale=1.0):
    """Return random sequences; what is kept is of the size of `scale`, and queries are as much smaller."""
    random = torch.Generator().manual_seed(seed)

    def values(*shape, factor=1.0):
        return (torch.randn(*shape, generator=random) * factor).to(dtype)

    kept = [values(context + new, site.latent_dim + site.rope_dim, factor=scale) for context, new in rows]
    tokens = sum(new for _, new in rows)
    # The parts of a query lie behind each other.
    q = values(tokens, site.num_heads, site.key_dim + site.rope_dim, factor=1 / scale)
    key = values(site.num_heads, site.key_dim, site.latent_dim, factor=site.latent_dim**-0.5)
    value = values(site.num_heads, site.latent_dim, site.value_dim, factor=site.latent_dim**-0.5)
    return Case(rows, kept, *q.split([site.key_dim, site.rope_dim], -1), key, value)


def views(rows, block_size, seed=0):
    """All positions as one step, the last tokens of each row as another, and how many blocks there are."""
    rng = np.random.default_rng(seed)
    context, new = np.array(rows, dtype=np.int64).T
    lengths = context + new
    needed = -(-lengths // block_size)
    blocks = int(needed.sum()) + 3
    free = iter(rng.permutation(blocks))
    tables = np.zeros((len(rows), int(needed.max()) + 1), dtype=np.int32)
    for row, count in enumerate(needed):
        tables[row, :count] = [next(free) for _ in range(count)]

    def view(counts):
        row_of = np.repeat(np.arange(len(rows)), counts)
        starts = np.concatenate([[0], np.cumsum(counts)])
        positions = np.arange(starts[-1]) - np.repeat(starts[:-1] - (lengths - counts), counts)
        slots = tables[row_of, positions // block_size].astype(np.int64) * block_size + positions % block_size
        arrays = (starts.astype(np.int32), lengths.astype(np.int32), torch.from_numpy(tables), torch.from_numpy(slots))
        return BatchView(*arrays, int(counts.max()), int(lengths.max()))

    return view(lengths), view(new), blocks


def filled(layer, backend, case, site, block_size):
    """Return a cache with the latents of all positions, and nothing sensible beside them, and the step's plan."""
    whole, step, blocks = views(case.rows, block_size)
    layout = backend.latent_layout(site)
    size = blocks * layout.bytes_per_block
    kv = torch.full((size,), 0xFF, dtype=torch.uint8).view(layout.dtype).view(blocks, *layout.block_shape)
    parts = torch.cat(case.kept).split([site.latent_dim, site.rope_dim], -1)
    layer.write(*parts, kv, backend.plan(whole))
    return kv, step, whole
