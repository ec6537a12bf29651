"""Timings of attention: prompts, and rows of one token, with a model's heads and blocks in any order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from core.api.attention import AttentionSite
from core_plugin_kernels_triton.attention.few import attend_few, memory
from core_plugin_kernels_triton.attention.form import Form, form_of, power_of_two
from core_plugin_kernels_triton.attention.prompts import attend_prompts
from core_plugin_kernels_triton.attention.tiles import entry, tiles, tiles_for
from core_plugin_kernels_triton.tune.cases import Call, Sizes

BLOCK_SIZE = 16
PROMPTS = ((1, 8192), (8, 1024))
"""Rows, and the tokens of each, all of them in the step."""
SINGLE = ((64, 4096), (1, 16384))
"""Rows of one token, and the tokens of each in the cache."""


def cases(sizes: Sizes, device: torch.device) -> Mapping[str, Sequence[Call]]:
    """Return kernel of the table -> calls whose time counts: those for heads of the model; none of latent ones."""
    if sizes.latent:
        return {}
    steps = _Steps(sizes, device)
    table = tiles(device)
    return {
        entry(table, "prompt", steps.row_bytes): [steps.prompts(*step) for step in PROMPTS],
        entry(table, "few", steps.row_bytes): [steps.single(*step) for step in SINGLE],
    }


class _Steps:
    """Steps that read one cache, by the tiles that the table has when they are called."""

    def __init__(self, sizes: Sizes, device: torch.device) -> None:
        self.device, self.dtype = device, getattr(torch, sizes.dtype)
        self.site = AttentionSite(0, sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.head_dim**-0.5)
        self.row_bytes = power_of_two(sizes.head_dim) * self.dtype.itemsize
        self.blocks = max(rows * -(-length // BLOCK_SIZE) for rows, length in (*PROMPTS, *SINGLE))
        shape = (self.blocks, 2, BLOCK_SIZE, sizes.kv_heads, sizes.head_dim)
        self.cache = torch.randn(shape, dtype=self.dtype, device=device)
        scales = torch.ones(sizes.kv_heads, device=device)
        self.terms = (None, None, scales, scales, self.site.scale * math.log2(math.e), 0.0)

    def form(self) -> Form:
        """Return the form of the layer now."""
        return form_of(self.site, BLOCK_SIZE, self.dtype, tiles_for(self.device, self.row_bytes))

    def prompts(self, rows: int, length: int) -> Call:
        """Return the attention of whole prompts."""
        q, kv, tables, starts, lengths, out = self._step(rows, length, length)
        return lambda: attend_prompts(q, kv, tables, starts, lengths, out, *self.terms, self.form())

    def single(self, rows: int, length: int) -> Call:
        """Return the attention of one token a row."""
        q, kv, tables, starts, lengths, out = self._step(rows, length, 1)

        def call() -> None:
            form = self.form()
            sums, tops = memory(q, rows, length, form)
            attend_few(q, kv, tables, starts, lengths, out, sums, tops, *self.terms, 1, length, form)

        return call

    def _step(self, rows: int, length: int, count: int) -> tuple[Tensor, ...]:
        """Return queries, the cache, and the step's tables, starts, lengths and output."""
        q = torch.randn(rows * count, self.site.num_heads, self.site.head_dim, dtype=self.dtype, device=self.device)
        columns = -(-length // BLOCK_SIZE)
        tables = torch.randperm(self.blocks, device=self.device)[: rows * columns].view(rows, columns).int()
        starts = torch.arange(rows + 1, dtype=torch.int32, device=self.device) * count
        lengths = torch.full((rows,), length, dtype=torch.int32, device=self.device)
        return q, self.cache, tables, starts, lengths, torch.empty_like(q)
