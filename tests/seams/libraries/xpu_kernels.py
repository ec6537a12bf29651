"""The attention of vllm-xpu-kernels, as its source describes it."""

from __future__ import annotations

from tests.seams.libraries.reference import attend, check_heads, check_rows, check_tables, module, need


def install(monkeypatch):
    """Install `vllm_xpu_kernels`; return the windows of all calls."""
    windows = []

    def flash_attn_varlen_func(
        q,
        k,
        v,
        max_seqlen_q,
        cu_seqlens_q,
        max_seqlen_k,
        cu_seqlens_k=None,
        seqused_k=None,
        q_v=None,
        dropout_p=0.0,
        softmax_scale=None,
        causal=False,
        window_size=None,
        softcap=0.0,
        alibi_slopes=None,
        deterministic=False,
        return_attn_probs=False,
        block_table=None,
        return_softmax_lse=False,
        out=None,
        s_aux=None,
    ):
        windows.append(tuple(window_size))
        rows = len(cu_seqlens_q) - 1
        need((cu_seqlens_k is None) != (seqused_k is None), "one of cu_seqlens_k and seqused_k")
        need(block_table is None or seqused_k is not None, "with block tables, seqused_k")
        check_heads(q, k, v, True)
        check_rows(rows + 1, cu_seqlens_q=cu_seqlens_q)
        check_rows(rows, seqused_k=seqused_k)
        check_tables(block_table, rows)
        need(isinstance(max_seqlen_q, int) and isinstance(max_seqlen_k, int), "maxima are numbers of the host")
        need(
            s_aux is None or (s_aux.dtype == q.dtype and s_aux.shape == (q.shape[1],)), "sinks in the dtype of queries"
        )
        terms = {"scale": softmax_scale, "causal": causal, "window": window_size, "cap": softcap}
        return attend(q, k, v, block_table, cu_seqlens_q, seqused_k, sinks=s_aux, **terms)

    package = module(monkeypatch, "vllm_xpu_kernels")
    package.__path__ = []
    module(monkeypatch, "vllm_xpu_kernels.flash_attn_interface", flash_attn_varlen_func=flash_attn_varlen_func)
    return windows
