"""AITER's attention and products, as its documentation describes them."""

from __future__ import annotations

import torch

from tests.seams.libraries.reference import (
    LIBRARY,
    _attend,
    attend,
    check_heads,
    check_rows,
    check_tables,
    module,
    need,
)

LIBRARY.define(
    "attend_places(Tensor q, Tensor kv, Tensor starts, Tensor ends, Tensor places, Tensor last, Tensor splits, "
    "float scale, Tensor(a!) out) -> ()"
)


def _attend_places(q, kv, starts, ends, places, last, splits, scale, out):
    need(starts.tolist() == list(range(len(q) + 1)), "queries one behind the other")
    need(bool((last == 1).all()) and bool((splits.diff() == splits[1]).all()), "whole pages, parts of every row")
    lengths = ends.diff()
    need(len(places) >= int(ends[-1]), "as many places as the last start says")
    tables = torch.zeros(len(q), max(1, int(lengths.max())), dtype=torch.int32)
    for row, (begin, count) in enumerate(zip(ends.tolist(), lengths.tolist())):
        tables[row, :count] = places[begin : begin + count]
    terms = (None, None, scale, False, -1, -1, 0, 0.0)
    _attend(q, kv, kv[..., : out.shape[-1]], tables, starts, lengths, *terms, out)


LIBRARY.impl("attend_places", _attend_places, "CompositeExplicitAutograd")

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

    def unified_attention(
        q,
        k,
        v,
        out,
        cu_seqlens_q,
        max_seqlen_q,
        seqused_k,
        max_seqlen_k,
        softmax_scale,
        causal,
        window_size,
        block_table,
        softcap,
        q_descale,
        k_descale,
        v_descale,
        alibi_slopes=None,
        output_scale=None,
        qq_bias=None,
        sinks=None,
    ):
        calls.append("unified")
        need(causal and q_descale is None and k_descale is None and v_descale is None, "causal, and no scales")
        check_heads(q, k, v, True)
        rows = len(seqused_k)
        check_rows(rows + 1, cu_seqlens_q=cu_seqlens_q)
        check_rows(rows, seqused_k=seqused_k)
        check_tables(block_table, rows)
        need(isinstance(max_seqlen_q, int) and isinstance(max_seqlen_k, int), "maxima are numbers of the host")
        need(isinstance(softcap, float) and out.shape == q.shape, "a cap is a float")
        need(sinks is None or sinks.shape == (q.shape[1],), "a sink for each head")
        terms = {"scale": softmax_scale, "window": (window_size[0], -1), "cap": softcap, "slopes": alibi_slopes}
        out.copy_(attend(q, k, v, block_table, cu_seqlens_q, seqused_k, sinks=sinks, **terms))

    def mla_decode_fwd(
        q,
        kv_buffer,
        o,
        qo_indptr,
        kv_indptr,
        kv_indices,
        kv_last_page_lens,
        max_seqlen_q,
        sm_scale=None,
        logit_cap=0.0,
        num_kv_splits=None,
        num_kv_splits_indptr=None,
    ):
        rows, heads, dim = q.shape
        calls.append(f"latents {num_kv_splits}")
        need(heads in (16, 128), f"there are no kernels for {heads} heads")
        need(kv_buffer.shape[1:] == (1, 1, dim) and q.is_contiguous() and o.is_contiguous(), "pages of one token")
        need(max_seqlen_q == 1 and sm_scale is not None and logit_cap == 0.0, "one query a row")
        need(o.shape[:2] == q.shape[:2] and rows > 0, "at least one row")
        starts = {"qo_indptr": qo_indptr, "kv_indptr": kv_indptr, "num_kv_splits_indptr": num_kv_splits_indptr}
        check_rows(rows + 1, **starts)
        check_rows(rows, kv_last_page_lens=kv_last_page_lens)
        need(kv_indices.dtype == torch.int32 and kv_indices.is_contiguous(), "places are 32-bit integers")
        torch.ops.seam_libraries.attend_places(
            q, kv_buffer, qo_indptr, kv_indptr, kv_indices, kv_last_page_lens, num_kv_splits_indptr, sm_scale, o
        )

    functions = (flash_attn_varlen_func, paged_attention_v1, gemm_a8w8_blockscale, gemm_a8w8_CK)
    modules = {
        "aiter": functions,
        "aiter.mla": (mla_decode_fwd,),
        "aiter.ops": (),
        "aiter.ops.triton": (),
        "aiter.ops.triton.unified_attention": (unified_attention,),
    }
    for name, own in modules.items():
        module(monkeypatch, name, **{one.__name__: one for one in own}).__path__ = []
    return calls
