"""FlashMLA's dense kernel, as its sources describe it: those of 2025, or those of 2026, which divide the work later."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from tests.seams.libraries.reference import LIBRARY, _attend, check_rows, check_tables, module, need

PAGE = 64

LIBRARY.define("divide(Tensor lengths, int heads, Tensor(a!) out) -> ()")
LIBRARY.define(
    "attend_divided(Tensor q, Tensor kv, Tensor tables, Tensor lengths, Tensor division, int values, float scale, "
    "Tensor(a!) out) -> ()"
)


def _divide(lengths, heads, out):
    out[:-1], out[-1] = lengths, heads


def _divided(lengths, heads):
    out = torch.empty(len(lengths) + 1, dtype=torch.int32)
    torch.ops.seam_libraries.divide(lengths, heads, out)
    return out


def _attend_divided(q, kv, tables, lengths, division, values, scale, out):
    due = torch.empty_like(division)
    _divide(lengths, q.shape[1], due)
    need(torch.equal(division, due), "the division is that of other lengths")
    starts = torch.arange(len(q) + 1)
    _attend(q, kv, kv[..., :values], tables, starts, lengths, None, None, scale, False, -1, -1, 0, 0.0, out)


LIBRARY.impl("divide", _divide, "CompositeExplicitAutograd")
LIBRARY.impl("attend_divided", _attend_divided, "CompositeExplicitAutograd")


def install(monkeypatch, *, late=False, page=PAGE):
    """Install `flash_mla`; return the rows of each call.

    Args:
        late: Work is divided in the first call that is given the division, as in the sources of 2026.
        page: Tokens of a page; 64 on a card.
    """
    calls = []

    def get_mla_metadata(cache_seqlens, num_q_tokens_per_head_k, num_heads_k):
        check_rows(len(cache_seqlens), cache_seqlens=cache_seqlens)
        need(num_heads_k == 1, "one head of keys")
        if late:
            return SimpleNamespace(division=None), None
        return _divided(cache_seqlens, num_q_tokens_per_head_k), torch.empty(1)

    def flash_mla_with_kvcache(
        q,
        k_cache,
        block_table,
        cache_seqlens,
        head_dim_v,
        tile_scheduler_metadata,
        num_splits,
        softmax_scale=None,
        causal=False,
    ):
        calls.append(len(q))
        rows, count, heads, dim = q.shape
        need(rows > 0 and count == 1, "at least one row, of one query")
        need(q.stride(-1) == k_cache.stride(-1) == 1 and q.dtype == k_cache.dtype, "dense numbers of one dtype")
        need(k_cache.shape[1:] == (page, 1, dim), f"a cache of {tuple(k_cache.shape)}")
        check_rows(rows, cache_seqlens=cache_seqlens)
        check_tables(block_table, rows)
        need((num_splits is None) == late, "splits come with the division")
        if late:
            if tile_scheduler_metadata.division is None:
                tile_scheduler_metadata.division = _divided(cache_seqlens, heads)
            division = tile_scheduler_metadata.division
        else:
            division = tile_scheduler_metadata
        out = torch.empty(rows, heads, head_dim_v, dtype=q.dtype)
        flat = (q[:, 0], k_cache, block_table, cache_seqlens, division, head_dim_v, softmax_scale)
        torch.ops.seam_libraries.attend_divided(*flat, out)
        return out[:, None], torch.empty(rows, heads, 1)

    module(
        monkeypatch,
        "flash_mla",
        get_mla_metadata=get_mla_metadata,
        flash_mla_with_kvcache=flash_mla_with_kvcache,
    )
    return calls
