"""The executable specification of paged attention: dense, float32, one row and one head at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from core.api.attention import AttentionSite, BatchView


def reference_attention(
    q: Tensor, kv: Tensor, batch: BatchView, site: AttentionSite, block_size: int, sinks: Tensor | None = None
) -> Tensor:
    """Attend by definition, with nothing batched.

    Args:
        q: `(tokens, heads, head_dim)`.
        kv: `(num_blocks, 2, block_size, kv_heads, head_dim)`, this step's keys and values already written; a cache of
            other elements comes as `elements.decode` reads it.
        sinks: `(heads,)`, for sites with sinks.

    Returns:
        `(tokens, heads * head_dim)` float32.
    """
    out = torch.zeros(q.shape, dtype=torch.float32)
    for row, length in enumerate(batch.seq_lens.tolist()):
        begin, end = int(batch.query_starts[row]), int(batch.query_starts[row + 1])
        keys, values = _history(kv, batch.block_tables[row], length, block_size)
        for token in range(begin, end):
            position = length - (end - token)
            first = 0 if site.window is None else max(0, position - site.window + 1)
            first = first if site.chunk is None else max(first, position // site.chunk * site.chunk)
            for head in range(site.num_heads):
                group = head * site.num_kv_heads // site.num_heads
                k, v = keys[first : position + 1, group], values[first : position + 1, group]
                scores = k @ q[token, head].float() * site.scale
                if site.softcap is not None:
                    scores = site.softcap * torch.tanh(scores / site.softcap)
                if site.slopes is not None:
                    back = position - torch.arange(first, position + 1)
                    scores = scores - site.slopes[head] * (back.sqrt() if site.rooted else back)
                if sinks is not None:
                    scores = torch.cat([scores, sinks[head : head + 1]])
                out[token, head] = torch.softmax(scores, 0)[: len(v)] @ v
    return out.flatten(1)


def _history(kv: Tensor, table: Tensor, length: int, block_size: int) -> tuple[Tensor, Tensor]:
    """Return keys and values of positions `0 .. length - 1`, each `(length, kv_heads, head_dim)` float32."""
    places = [(int(table[position // block_size]), position % block_size) for position in range(length)]
    keys = torch.stack([kv[block, 0, offset] for block, offset in places])
    values = torch.stack([kv[block, 1, offset] for block, offset in places])
    return keys.float(), values.float()
