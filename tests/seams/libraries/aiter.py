"""AITER's attention and products, as its documentation describes them."""

from __future__ import annotations

import torch

from tests.seams.libraries.reference import attend, check_heads, check_rows, check_tables, module, need

CODES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)


def install(monkeypatch):
    """Install `aiter`; return the names of the functions that were called, in order."""
    calls = []

    def flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        min_seqlen_q=0,
        dropout_p=0.0,
        softmax_scale=None,
        logits_soft_cap=0.0,
        causal=False,
        window_size=(-1, -1),
        bias=None,
        alibi_slopes=None,
        deterministic=False,
        return_lse=False,
        return_attn_probs=False,
        block_table=None,
        out=None,
    ):
        calls.append("prompts")
        check_heads(q, k, v, False)
        rows = len(cu_seqlens_q) - 1
        check_rows(rows + 1, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
        terms = {"scale": softmax_scale, "causal": causal, "window": window_size, "cap": logits_soft_cap}
        return attend(q, k, v, None, cu_seqlens_q, cu_seqlens_k.diff(), slopes=alibi_slopes, **terms)

    def paged_attention_v1(
        out,
        workspace_buffer,
        query,
        key_cache,
        value_cache,
        scale,
        block_tables,
        cu_query_lens,
        context_lens,
        max_context_len,
        alibi_slopes,
        kv_cache_dtype,
        kv_cache_layout,
        logits_soft_cap,
        k_scale,
        v_scale,
        fp8_out_scale=None,
        partition_size=256,
        mtp=1,
    ):
        calls.append("tokens")
        rows, heads, dim = query.shape
        need(query.is_contiguous() and out.is_contiguous() and out.shape == query.shape, "dense queries and results")
        check_heads(query, key_cache, value_cache, True)
        check_tables(block_tables, rows)
        check_rows(rows, context_lens=context_lens)
        need(kv_cache_layout == "NHD" and kv_cache_dtype == "auto", "the layout of the cache")
        need(key_cache.shape[1] in (16, 32), f"pages of {key_cache.shape[1]}")
        need(k_scale.dtype == v_scale.dtype == torch.float32, "scales are float32")
        parts = -(-max_context_len // partition_size)
        least = rows * heads * parts * dim * query.element_size() + 2 * rows * heads * parts * 4
        need(
            workspace_buffer.dtype == torch.uint8 and workspace_buffer.numel() >= least, f"a workspace of {least} bytes"
        )
        starts = torch.arange(rows + 1, dtype=torch.int32)
        terms = {"scale": scale, "cap": logits_soft_cap, "slopes": alibi_slopes}
        out.copy_(attend(query, key_cache, value_cache, block_tables, starts, context_lens, **terms))
        return out

    def gemm_a8w8_blockscale(x, w, x_scale, w_scale, dtype=torch.bfloat16):
        need(x.dtype == w.dtype and x.dtype in CODES and x.is_contiguous() and w.is_contiguous(), "codes")
        need(dtype in (torch.bfloat16, torch.float16), f"results of {dtype}")
        runs = x.shape[1] // 128
        need(x_scale.shape == (len(x), runs) and w_scale.shape == (-(-len(w) // 128), runs), "scales")
        need(x_scale.dtype == w_scale.dtype == torch.float32, "float32 scales")
        values = x.float() * x_scale.repeat_interleave(128, 1)
        return (values @ (w.float() * w_scale.repeat_interleave(128, 0)[: len(w)].repeat_interleave(128, 1)).T).to(
            dtype
        )

    def gemm_a8w8_CK(x, w, x_scale, w_scale, bias=None, dtype=torch.bfloat16, splitK=None):
        need(x.dtype == w.dtype == torch.int8 and x.is_contiguous() and w.is_contiguous(), "codes")
        need(x_scale.shape == (len(x), 1) and w_scale.shape == (len(w), 1), "scales of rows")
        need(x_scale.dtype == w_scale.dtype == torch.float32 and dtype in (torch.bfloat16, torch.float16), "dtypes")
        return ((x.float() @ w.float().T) * x_scale * w_scale.T).to(dtype)

    functions = (flash_attn_varlen_func, paged_attention_v1, gemm_a8w8_blockscale, gemm_a8w8_CK)
    module(monkeypatch, "aiter", **{one.__name__: one for one in functions})
    return calls
