"""FlashAttention 2 and 3, as their documentation describes them."""

from __future__ import annotations

import torch

from tests.seams.libraries.reference import attend, check_heads, check_rows, check_tables, module, need

PAGE = 256
"""Version 2's pages are multiples of this."""


def version2(monkeypatch, page=PAGE):
    """Install `flash_attn`; return the names of the functions that were called, in order."""
    calls = []

    def flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p=0.0,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1),
        softcap=0.0,
        alibi_slopes=None,
        deterministic=False,
        return_attn_probs=False,
        block_table=None,
    ):
        calls.append("varlen")
        rows = len(cu_seqlens_q) - 1
        check_heads(q, k, v, block_table is not None)
        check_rows(rows + 1, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
        need(isinstance(max_seqlen_q, int) and isinstance(max_seqlen_k, int), "maxima are numbers of the host")
        _check_terms(q, softcap, alibi_slopes)
        if block_table is not None:
            check_tables(block_table, rows)
            need(k.shape[1] % page == 0, f"pages of {k.shape[1]}")
        lengths = cu_seqlens_k.diff()
        terms = {"scale": softmax_scale, "causal": causal, "window": window_size, "cap": softcap}
        return attend(q, k, v, block_table, cu_seqlens_q, lengths, slopes=alibi_slopes, **terms)

    def flash_attn_with_kvcache(
        q,
        k_cache,
        v_cache,
        k=None,
        v=None,
        rotary_cos=None,
        rotary_sin=None,
        cache_seqlens=None,
        cache_batch_idx=None,
        cache_leftpad=None,
        block_table=None,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1),
        softcap=0.0,
        rotary_interleaved=True,
        alibi_slopes=None,
        num_splits=0,
        return_softmax_lse=False,
    ):
        calls.append(f"kvcache {num_splits}")
        rows, count = q.shape[:2]
        need(q.dim() == 4, f"queries {tuple(q.shape)}")
        check_heads(q.flatten(0, 1), k_cache, v_cache, True)
        check_rows(rows, cache_seqlens=cache_seqlens)
        check_tables(block_table, rows)
        need(k_cache.shape[1] % page == 0, f"pages of {k_cache.shape[1]}")
        _check_terms(q, softcap, alibi_slopes)
        starts = torch.arange(rows + 1, dtype=torch.int32) * count
        terms = {"scale": softmax_scale, "causal": causal, "window": window_size, "cap": softcap}
        flat = q.flatten(0, 1)
        out = attend(flat, k_cache, v_cache, block_table, starts, cache_seqlens, slopes=alibi_slopes, **terms)
        return out.view(q.shape)

    functions = {"flash_attn_varlen_func": flash_attn_varlen_func, "flash_attn_with_kvcache": flash_attn_with_kvcache}
    module(monkeypatch, "flash_attn", **functions)
    return calls


def _check_terms(q, softcap, slopes):
    need(q.shape[-1] % 8 == 0 and q.shape[-1] <= 256, f"heads of {q.shape[-1]}")
    need(isinstance(softcap, float), "a cap is a float")
    if slopes is not None:
        need(slopes.dtype == torch.float32 and slopes.shape == (q.shape[-2],), "slopes are float32, one for each head")


def version3(monkeypatch):
    """Install `flash_attn_interface`; return the splits of each call over pages."""
    calls = []

    def flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        seqused_q=None,
        seqused_k=None,
        softmax_scale=None,
        causal=False,
        qv=None,
        q_descale=None,
        k_descale=None,
        v_descale=None,
        window_size=(-1, -1),
        attention_chunk=0,
        softcap=0.0,
        num_splits=1,
        pack_gqa=None,
        deterministic=False,
        sm_margin=0,
    ):
        check_heads(q, k, v, False)
        check_rows(len(cu_seqlens_q), cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
        terms = {"scale": softmax_scale, "causal": causal, "window": window_size, "cap": softcap}
        out = attend(q, k, v, None, cu_seqlens_q, cu_seqlens_k.diff(), **terms)
        return out, None  # some releases return the sums too

    def flash_attn_with_kvcache(
        q,
        k_cache,
        v_cache,
        k=None,
        v=None,
        qv=None,
        rotary_cos=None,
        rotary_sin=None,
        cache_seqlens=None,
        cache_batch_idx=None,
        cache_leftpad=None,
        page_table=None,
        cu_seqlens_q=None,
        cu_seqlens_k_new=None,
        max_seqlen_q=None,
        rotary_seqlens=None,
        q_descale=None,
        k_descale=None,
        v_descale=None,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1),
        attention_chunk=0,
        softcap=0.0,
        rotary_interleaved=True,
        scheduler_metadata=None,
        num_splits=0,
        pack_gqa=None,
        sm_margin=0,
        return_softmax_lse=False,
    ):
        calls.append(num_splits)
        rows = len(cache_seqlens)
        check_heads(q, k_cache, v_cache, True)
        need(q.dim() == 3, "queries of all rows one behind the other, with cu_seqlens_q")
        check_rows(rows + 1, cu_seqlens_q=cu_seqlens_q)
        check_rows(rows, cache_seqlens=cache_seqlens)
        check_tables(page_table, rows)
        need(isinstance(max_seqlen_q, int) and max_seqlen_q > 0, "max_seqlen_q belongs to cu_seqlens_q")
        terms = {"scale": softmax_scale, "causal": causal, "window": window_size, "cap": softcap}
        return attend(q, k_cache, v_cache, page_table, cu_seqlens_q, cache_seqlens, chunk=attention_chunk, **terms)

    functions = {"flash_attn_varlen_func": flash_attn_varlen_func, "flash_attn_with_kvcache": flash_attn_with_kvcache}
    module(monkeypatch, "flash_attn_interface", **functions)
    return calls
