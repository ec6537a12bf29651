"""What the kernels of one latent layer are compiled for, as numbers."""

from __future__ import annotations

from typing import NamedTuple

import torch

from core.api.attention import AttentionContext, LatentSite
from core_plugin_kernels_triton.attention.form import FLOAT8, power_of_two
from core_plugin_kernels_triton.tables import sections, sizes

FEW = 8
"""Most new tokens of rows whose context is split."""


class LatentForm(NamedTuple):
    """A layer's geometry, and its tiles. It crosses torch operations as a list of integers.

    Attributes:
        latent_width, rope_width: Sizes of latents and of rotated keys, as powers of two.
        float8: 1: a cache of e4m3fn; 2: of e5m2.
        m, n: Queries times heads, and keys, of a tile.
        split: Fewest keys of a split of a row, a multiple of `n`.
        splits: Most splits, a power of two.
    """

    heads: int
    latent_dim: int
    rope_dim: int
    latent_width: int
    rope_width: int
    block_size: int
    float8: int
    m: int
    n: int
    warps: int
    stages: int
    split: int
    splits: int

    def splits_of(self, length: int) -> int:
        """Return how many splits rows of up to `length` tokens have at most."""
        return min(self.splits, -(-length // self.split))


def form_of(site: LatentSite, ctx: AttentionContext) -> LatentForm:
    """Return the form of a layer."""
    table = tiles(ctx.device)
    width = power_of_two(site.latent_dim) * ctx.dtype.itemsize
    tile = next((one for one in table["attend"] if width <= one["bytes"]), table["attend"][-1])
    return LatentForm(
        heads=site.num_heads,
        latent_dim=site.latent_dim,
        rope_dim=site.rope_dim,
        latent_width=max(16, power_of_two(site.latent_dim)),
        rope_width=max(16, power_of_two(site.rope_dim)),
        block_size=ctx.block_size,
        float8=FLOAT8.get(ctx.kv_dtype, 0),
        m=tile["m"],
        n=tile["n"],
        warps=tile["warps"],
        stages=tile["stages"],
        split=table["split"],
        splits=table["splits"],
    )


def tiles(device: torch.device) -> dict:  # type: ignore[type-arg]
    """Return the table for a device."""
    return sizes("latent", sections(device))
