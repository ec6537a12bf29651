"""Attention to compressed entries by native kernels (`csrc/cpu/attention/entries.h`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from core.api.attention import CompressedSite
from core_plugin_cpu.native.attention import aligned
from core_plugin_cpu.native.entry import Entry
from core_plugin_cpu.native.latent import place_of, scratch_of
from core_plugin_cpu.native.picks import take

if TYPE_CHECKING:
    from torch import Tensor

    from core_plugin_cpu.native.attention import Batch
    from core_plugin_cpu.native.picks import VectorCache

ENTRY_ATTENTION = Entry(
    "entry_attention",
    pointers="q cache out sums picked query_starts seq_lens table scratch",
    sizes="rows heads head_dim block_size ratio picks table_stride dtype kv_dtype threads",
    numbers="scale",
    slots={name: name for name in ("query_starts", "seq_lens", "rows", "table", "table_stride")},
)

_VECTOR = 16
"""The last dimension of queries and results is a multiple of this."""


def scratch_for(site: CompressedSite, threads: int) -> Tensor:
    """Return scratch memory for layers of this geometry with up to `threads` threads, whatever the batch."""
    sizes = (1, site.num_heads, site.head_dim, 0, 1, site.picks or 0, 0, 0, 0, threads)
    return aligned(scratch_of(ENTRY_ATTENTION, (*sizes, 0.0)))


def attend(
    q: Tensor, kv: Tensor, batch: Batch, site: CompressedSite, cache: VectorCache, picked: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attend to the entries that queries see: `q (tokens, heads, head_dim)`.

    Args:
        picked: `(tokens, picks)` int32, those that queries of rows with more than `picks` see; -1 stands for none.

    Returns:
        `(tokens, heads, head_dim)` float32, and `(tokens, heads)` float32, the logarithms of the sums of `exp(score)`.
    """
    tokens, heads, size = batch.tokens, site.num_heads, site.head_dim
    q = take("q", q, (tokens, heads, size), cache.dtype)
    cache.compare(kv, batch)
    places, picks = (
        (0, 0) if picked is None else (place_of(picked, batch, site.picks or 0, site.ratio), picked.shape[1])
    )
    lacks = -size % _VECTOR
    q = pad(q, (0, lacks)) if lacks else q.contiguous()
    out = torch.empty(tokens, heads, size + lacks, dtype=torch.float32)
    sums = torch.empty(tokens, heads, dtype=torch.float32)
    pointers = (q.data_ptr(), kv.data_ptr(), out.data_ptr(), sums.data_ptr(), places)
    rows = (batch.query_starts, batch.seq_lens, batch.table, cache.scratch.data_ptr())
    sizes = (batch.rows, heads, size, cache.layout.block_shape[0], site.ratio, picks, batch.table_stride)
    ENTRY_ATTENTION(*pointers, *rows, *sizes, *cache.kind, site.scale)
    return (out[..., :size] if lacks else out), sums
