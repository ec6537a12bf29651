"""FlashInfer's wrappers over pages, as their documentation describes them."""

from __future__ import annotations

import torch

from tests.seams.libraries.reference import LIBRARY, _attend, module, need

LIBRARY.define(
    "attend_pages(Tensor q, Tensor kv, Tensor? starts, Tensor page_starts, Tensor places, Tensor last, float k_scale, "
    "float v_scale, float scale, int left, float cap, Tensor(a!) out) -> ()"
)


def _attend_pages(q, kv, starts, page_starts, places, last, k_scale, v_scale, scale, left, cap, out):
    counts = page_starts.diff()
    size = kv.shape[2]
    tables = torch.zeros(len(counts), max(counts.max().item(), 1), dtype=torch.int32)
    for row, (begin, count) in enumerate(zip(page_starts.tolist(), counts.tolist())):
        tables[row, :count] = places[begin : begin + count]
    lengths = (counts - 1).clamp(min=0) * size + last
    if starts is None:
        starts = torch.arange(len(counts) + 1)
    k, v = (kv[:, half].to(q.dtype) * factor for half, factor in ((0, k_scale), (1, v_scale)))
    _attend(q, k, v, tables, starts, lengths, None, None, scale, True, left, -1, 0, cap, out)


LIBRARY.impl("attend_pages", _attend_pages, "CompositeExplicitAutograd")


class _Wrapper:
    """What both wrappers have."""

    made: list

    def _init(self, workspace, layout, use_cuda_graph, *buffers):
        need(workspace.dtype == torch.uint8 and workspace.dim() == 1 and workspace.numel() >= 1 << 20, "a workspace")
        need(layout in ("NHD", "HND"), layout)
        need(not use_cuda_graph or all(one is not None for one in buffers), "graphs want memory that stays")
        self.workspace, self._graph, self._buffers, self._planned = workspace, use_cuda_graph, buffers, None
        self.plans, self.named = 0, {}
        self.made.append(self)

    def _take(self, starts, indptr, indices, last, sizes, named):
        heads, kv_heads, _, page = sizes
        need(all(one.dtype == torch.int32 for one in (indptr, indices, last)), "32-bit indices")
        need(len(indptr) == len(last) + 1, f"{len(indptr)} starts of {len(last)} rows")
        # Read as a host reads its own memory: what a device has yet to compute would be poison here.
        begins, ends = indptr.numpy(), last.numpy()
        need(begins[-1] == len(indices), "as many pages as the last start says")
        need((ends >= 1).all() or starts is not None, "no empty row while decoding")
        need((ends <= page).all(), "a last page is no longer than a page")
        need(heads % kv_heads == 0 and named["pos_encoding_mode"] == "NONE", "heads")
        need(named["sm_scale"] is not None and named["q_data_type"] is not None, "scale and dtypes")
        if self._graph:
            # The batch that the memory was made for, no other: only contents change.
            need(len(indptr) == len(self._buffers[0]), "graphs have a fixed number of rows")
            need(len(indices) <= len(self._buffers[1]), "more pages than the memory holds")
            self._buffers[0].copy_(indptr)
            self._buffers[1][: len(indices)].copy_(indices)
            self._buffers[2].copy_(last)
            pages = self._buffers
        else:
            pages = (indptr.clone(), indices.clone(), last.clone())
        self._planned = (None if starts is None else starts.clone(), pages, sizes, named)
        self.plans, self.named = self.plans + 1, named

    def run(self, q, paged_kv_cache, *, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False):
        need(self._planned is not None, "plan before run")
        starts, pages, (heads, kv_heads, dim, page), named = self._planned
        need(q.is_contiguous() and q.shape[1:] == (heads, dim) and q.dtype == named["q_data_type"], "queries")
        need(paged_kv_cache.shape[1:] == (2, page, kv_heads, dim), f"a cache of {tuple(paged_kv_cache.shape)}")
        need(paged_kv_cache.dtype == named["kv_data_type"], f"a cache of {paged_kv_cache.dtype}")
        if starts is None:
            need(len(q) == len(pages[2]), "one query a row")
        out = torch.empty_like(q)
        terms = (named["sm_scale"], named["window_left"], named["logits_soft_cap"] or 0.0)
        torch.ops.seam_libraries.attend_pages(
            *(q, paged_kv_cache, starts, *pages, k_scale or 1.0, v_scale or 1.0, *terms, out)
        )
        return out


def install(monkeypatch, splits=True):
    """Install `flashinfer`; return the wrappers that are made.

    Args:
        splits: Whether this release can be told to do without.
    """

    wrappers = []

    def named(arguments):
        known = {"pos_encoding_mode": "NONE", "window_left": -1, "logits_soft_cap": None, "sm_scale": None}
        known |= {"q_data_type": "float16", "kv_data_type": None, "non_blocking": True, "causal": False}
        known |= {"disable_split_kv": False} if splits else {}
        need(set(arguments) <= set(known), f"no arguments {sorted(set(arguments) - set(known))}")
        return known | arguments

    class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
        made = wrappers

        def __init__(self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False):
            self._init(float_workspace_buffer, kv_layout, use_cuda_graph)

        def plan(
            self,
            qo_indptr,
            paged_kv_indptr,
            paged_kv_indices,
            paged_kv_last_page_len,
            num_qo_heads,
            num_kv_heads,
            head_dim_qk,
            page_size,
            **arguments,
        ):
            need(arguments["causal"], "decoders are causal")
            need(qo_indptr.dtype == torch.int32 and len(qo_indptr) == len(paged_kv_indptr), "starts of queries")
            sizes = (num_qo_heads, num_kv_heads, head_dim_qk, page_size)
            pages = (paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
            self._take(qo_indptr, *pages, sizes, named(arguments))

    class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
        made = wrappers

        def __init__(
            self,
            float_workspace_buffer,
            kv_layout="NHD",
            use_cuda_graph=False,
            use_tensor_cores=False,
            paged_kv_indptr_buffer=None,
            paged_kv_indices_buffer=None,
            paged_kv_last_page_len_buffer=None,
        ):
            self.tensor_cores = use_tensor_cores
            buffers = (paged_kv_indptr_buffer, paged_kv_indices_buffer, paged_kv_last_page_len_buffer)
            self._init(float_workspace_buffer, kv_layout, use_cuda_graph, *buffers)

        def plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, **arguments):
            need("causal" not in arguments, "decoding is causal")
            sizes = (num_qo_heads, num_kv_heads, head_dim, page_size)
            need(self.tensor_cores or num_qo_heads // num_kv_heads in (1, 2, 3, 4, 8), "groups without tensor cores")
            self._take(None, indptr, indices, last_page_len, sizes, named(arguments))

    module(
        monkeypatch,
        "flashinfer",
        BatchPrefillWithPagedKVCacheWrapper=BatchPrefillWithPagedKVCacheWrapper,
        BatchDecodeWithPagedKVCacheWrapper=BatchDecodeWithPagedKVCacheWrapper,
    )
    return wrappers
