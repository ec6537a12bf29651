"""Forms: the sizes and constants that the kernels of one latent layer are compiled for, as numbers."""

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
        key_width, value_width: Sizes of a head's keys that are not rotated, and values, as powers of two.
        wide_m, wide_n, wide_warps, wide_stages: Queries and keys of a tile of the expanded form, and as Triton takes
            them.
        fewest: Fewest new tokens of rows that are expanded.
        piece: Positions that are expanded at once.
        stored: Tokens that one program copies.
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
    key_dim: int
    value_dim: int
    key_width: int
    value_width: int
    wide_m: int
    wide_n: int
    wide_warps: int
    wide_stages: int
    fewest: int
    piece: int
    stored: int

    def splits_of(self, length: int) -> int:
        """Return how many splits rows of up to `length` tokens have at most."""
        return min(self.splits, -(-length // self.split))


def form_of(site: LatentSite, ctx: AttentionContext) -> LatentForm:
    """Return the form of a layer."""
    table = tiles(ctx.device)
    tile = _fitting(table["attend"], power_of_two(site.latent_dim) * ctx.dtype.itemsize)
    wide = _fitting(table["expand"], power_of_two(max(site.key_dim, site.value_dim)) * ctx.dtype.itemsize)
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
        key_dim=site.key_dim,
        value_dim=site.value_dim,
        key_width=max(16, power_of_two(site.key_dim)),
        value_width=max(16, power_of_two(site.value_dim)),
        wide_m=wide["m"],
        wide_n=wide["n"],
        wide_warps=wide["warps"],
        wide_stages=wide["stages"],
        fewest=max(FEW + 1, table["fewest"]),
        piece=table["piece"],
        stored=table["stored"],
    )


def _fitting(entries: list[dict[str, int]], row_bytes: int) -> dict[str, int]:
    """Return the first entry for rows of so many bytes; the last is for all larger ones."""
    return next((one for one in entries if row_bytes <= one["bytes"]), entries[-1])


def tiles(device: torch.device) -> dict:  # type: ignore[type-arg]
    """Return the table for a device."""
    return sizes("latent", sections(device))
