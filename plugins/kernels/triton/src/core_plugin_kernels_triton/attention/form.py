"""Forms: the sizes and constants that the kernels of one layer are compiled for, as numbers."""

from __future__ import annotations

from typing import NamedTuple

import torch

from core.api.attention import AttentionSite
from core_plugin_kernels_triton.attention.tiles import Tiles

FLOAT8 = {torch.float8_e4m3fn: 1, torch.float8_e5m2: 2}


class Form(NamedTuple):
    """A layer's geometry, and its tiles. It crosses torch operations as a list of integers.

    Attributes:
        group: Heads of the queries for each of keys and values.
        dim: Size of a head; `width` is the next power of two.
        window, chunk: 0 for none.
        capped: 1 with a soft cap.
        alibi: 1: scores fall with the distance; 2: with its root.
        float8: 1: a cache of e4m3fn; 2: of e5m2.
        prompt_m, prompt_n: Queries times `group`, and keys, of a tile of prompts.
        few_m, few_n: The same of rows with few tokens.
        stored: Heads of tokens that one program stores.
        merged: Heads whose splits one program puts together.
        split: Fewest keys of a split of a row, a multiple of `few_n`.
        splits: Most splits, a power of two.
        joint: Most rows whose shared splits are computed together.
        prompt_warps, prompt_stages, few_warps, few_stages: As Triton takes them.
    """

    group: int
    kv_heads: int
    dim: int
    width: int
    block_size: int
    window: int
    chunk: int
    capped: int
    alibi: int
    float8: int
    prompt_m: int
    prompt_n: int
    prompt_warps: int
    prompt_stages: int
    few_m: int
    few_n: int
    few_warps: int
    few_stages: int
    stored: int
    merged: int
    split: int
    splits: int
    joint: int

    @property
    def queries(self) -> int:
        """Query positions of a tile of prompts."""
        return self.prompt_m // self.group

    @property
    def few(self) -> int:
        """Most tokens of rows that are computed in splits: as many as fit a tile without making it larger."""
        return self.few_m // self.group

    @property
    def together(self) -> int:
        """Rows of one token whose shared splits are computed together: as many as fit a tile of few tokens."""
        return 1 if self.whole or self.window or self.chunk else min(self.joint, self.few)

    @property
    def whole(self) -> bool:
        """Whether no row ever has a second split: what is compiled must not depend on the step."""
        return self.splits_of(1 << 62) == 1

    def splits_of(self, length: int) -> int:
        """Return how many splits rows of up to `length` tokens in the cache, few of them new, have at most."""
        spans = [length, *(one + self.few + self.few_n for one in (self.window, self.chunk) if one)]
        return min(self.splits, -(-min(spans) // self.split))


def form_of(site: AttentionSite, block_size: int, kv_dtype: torch.dtype, tiles: Tiles) -> Form:
    """Return the form of a layer."""
    group = site.num_heads // site.num_kv_heads
    least = max(16, power_of_two(group))  # products have at least 16 rows
    return Form(
        group=group,
        kv_heads=site.num_kv_heads,
        dim=site.head_dim,
        width=max(16, power_of_two(site.head_dim)),
        block_size=block_size,
        window=site.window or 0,
        chunk=site.chunk or 0,
        capped=int(site.softcap is not None),
        alibi=0 if site.slopes is None else 1 + site.rooted,
        float8=FLOAT8.get(kv_dtype, 0),
        prompt_m=max(tiles.prompt.m, least),
        prompt_n=tiles.prompt.n,
        prompt_warps=tiles.prompt.warps,
        prompt_stages=tiles.prompt.stages,
        few_m=max(tiles.few.m, least),
        few_n=tiles.few.n,
        few_warps=tiles.few.warps,
        few_stages=tiles.few.stages,
        stored=tiles.stored,
        merged=tiles.merged,
        split=tiles.split,
        splits=tiles.splits,
        joint=tiles.joint,
    )


def power_of_two(size: int) -> int:
    """Return the least power of two that is no smaller."""
    return 1 << (size - 1).bit_length()
