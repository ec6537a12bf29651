"""FlashInfer's wrappers over pages, as their documentation describes them."""

from __future__ import annotations

import torch

from tests.seams.libraries.reference import LIBRARY, _attend, module, need

LIBRARY.define(
    "attend_pages(Tensor q, Tensor kv, Tensor? starts, Tensor page_starts, Tensor places, Tensor last, float k_scale, "
    "float v_scale, Tensor? sinks, float scale, bool causal, int left, float cap, Tensor(a!) out) -> ()"
)
LIBRARY.define(
    "attend_latents(Tensor q, Tensor q_rope, Tensor latents, Tensor rotated, Tensor starts, Tensor page_starts, "
    "Tensor places, Tensor lengths, float scale, bool causal, Tensor(a!) out) -> ()"
)


def _tables(page_starts, places):
    counts = page_starts.diff()
    tables = torch.zeros(len(counts), max(counts.max().item(), 1), dtype=torch.int32)
    for row, (begin, count) in enumerate(zip(page_starts.tolist(), counts.tolist())):
        tables[row, :count] = places[begin : begin + count]
    return counts, tables


def _attend_pages(q, kv, starts, page_starts, places, last, k_scale, v_scale, sinks, scale, causal, left, cap, out):
    counts, tables = _tables(page_starts, places)
    lengths = (counts - 1).clamp(min=0) * kv.shape[2] + last
    if starts is None:
        starts = torch.arange(len(counts) + 1)
    k, v = (kv[:, half].to(q.dtype) * factor for half, factor in ((0, k_scale), (1, v_scale)))
    _attend(q, k, v, tables, starts, lengths, None, sinks, scale, causal, left, -1, 0, cap, out)


def _attend_latents(q, q_rope, latents, rotated, starts, page_starts, places, lengths, scale, causal, out):
    _, tables = _tables(page_starts, places)
    keys = torch.cat((latents, rotated), -1)[:, :, None]
    queries, values = torch.cat((q, q_rope), -1), latents[:, :, None]
    _attend(queries, keys, values, tables, starts, lengths, None, None, scale, causal, -1, -1, 0, 0.0, out)


LIBRARY.impl("attend_pages", _attend_pages, "CompositeExplicitAutograd")
LIBRARY.impl("attend_latents", _attend_latents, "CompositeExplicitAutograd")


class _Wrapper:
    """What both wrappers have."""

    made: list
    sinks = False

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

    def run(self, q, paged_kv_cache, *args, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False):
        need(self._planned is not None, "plan before run")
        starts, pages, (heads, kv_heads, dim, page), named = self._planned
        need(q.is_contiguous() and q.shape[1:] == (heads, dim) and q.dtype == named["q_data_type"], "queries")
        need(paged_kv_cache.shape[1:] == (2, page, kv_heads, dim), f"a cache of {tuple(paged_kv_cache.shape)}")
        need(paged_kv_cache.dtype == named["kv_data_type"], f"a cache of {paged_kv_cache.dtype}")
        if starts is None:
            need(len(q) == len(pages[2]), "one query a row")
        out = torch.empty_like(q)
        sinks, scale, cap = None, named["sm_scale"], named["logits_soft_cap"] or 0.0
        if self.sinks:
            sinks, scale = args
            need(sinks.dtype == torch.float32 and sinks.shape == (heads,) and sinks.is_contiguous(), "sinks")
            need(isinstance(scale, float) and not cap and k_scale is None, "a scale, and neither caps nor scales")
            need(self.left == (named["window_left"] >= 0), "kernels are compiled with a window or without")
        else:
            need(not args, "no further arguments")
        terms = (sinks, scale, named.get("causal") is not False, named["window_left"], cap)
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

    class BatchAttentionWithAttentionSinkWrapper(_Wrapper):
        made = wrappers
        sinks = True

        def __init__(
            self,
            float_workspace_buffer,
            kv_layout="NHD",
            use_cuda_graph=False,
            qo_indptr_buf=None,
            paged_kv_indptr_buf=None,
            paged_kv_indices_buf=None,
            paged_kv_last_page_len_buf=None,
            custom_mask_buf=None,
            mask_indptr_buf=None,
            backend="auto",
            pos_encoding_mode="NONE",
            use_fp16_qk_reduction=False,
            q_data_type=torch.bfloat16,
            kv_data_type=torch.bfloat16,
            head_dim_qk=128,
            head_dim_vo=128,
            window_left=-1,
        ):
            need(backend in ("fa2", "fa3", "auto") and custom_mask_buf is None is mask_indptr_buf, backend)
            need(q_data_type == kv_data_type and head_dim_qk == head_dim_vo, "one dtype and one size")
            need(not use_cuda_graph or (qo_indptr_buf is not None and backend == "fa2"), "graphs")
            self.backend, self.left, self.dims = backend, window_left >= 0, (head_dim_qk, q_data_type)
            buffers = (paged_kv_indptr_buf, paged_kv_indices_buf, paged_kv_last_page_len_buf)
            self._init(float_workspace_buffer, kv_layout, use_cuda_graph, *buffers)

        plan = BatchPrefillWithPagedKVCacheWrapper.plan

    class BatchMLAPagedAttentionWrapper:
        """Reads starts and lengths on the host, and keeps them; places stay on the device."""

        def __init__(
            self,
            float_workspace_buffer,
            use_cuda_graph=False,
            qo_indptr=None,
            kv_indptr=None,
            kv_indices=None,
            kv_len_arr=None,
            backend="auto",
        ):
            need(backend in ("fa2", "fa3"), "the choice of newer releases forgets that graphs plan again")
            buffers = (qo_indptr, kv_indptr, kv_indices, kv_len_arr)
            need(not use_cuda_graph or all(one.dtype == torch.int32 for one in buffers), "memory that stays")
            self.workspace, self._graph, self._buffers, self.plans = float_workspace_buffer, use_cuda_graph, buffers, 0
            wrappers.append(self)

        def plan(
            self,
            qo_indptr,
            kv_indptr,
            kv_indices,
            kv_len_arr,
            num_heads,
            head_dim_ckv,
            head_dim_kpe,
            page_size,
            causal,
            sm_scale,
            q_data_type,
            kv_data_type,
            use_profiler=False,
        ):
            given = (qo_indptr, kv_indptr, kv_indices, kv_len_arr)
            need(all(one.dtype == torch.int32 for one in given), "32-bit indices")
            counts, lengths = qo_indptr.numpy()[1:] - qo_indptr.numpy()[:-1], kv_len_arr.numpy()
            need(len(qo_indptr) == len(kv_indptr) == len(lengths) + 1, "as many rows everywhere")
            need((counts > 0).all(), "rows without queries change the size of tiles")
            need(kv_indptr.numpy()[-1] == len(kv_indices), "as many pages as the last start says")
            tile = 64 * (2 if counts.sum() * num_heads // len(counts) > 64 else 1)
            need(not causal or tile % num_heads == 0, f"a tile of {tile} cuts the heads of a query")
            need((-(-counts * num_heads // tile)).sum() <= 16384, "more tiles than a plan has memory for")
            if self._graph:
                need(len(lengths) == len(self._buffers[3]), "graphs have a fixed number of rows")
                for buffer, one in zip(self._buffers, given):
                    buffer[: len(one)].copy_(one)
                given = self._buffers
            else:
                given = tuple(one.clone() for one in given)
            self._planned = (given, num_heads, head_dim_ckv, head_dim_kpe, page_size, causal, sm_scale)
            self._dtypes, self.plans = (q_data_type, kv_data_type), self.plans + 1

        def run(self, q_nope, q_pe, ckv_cache, kpe_cache, out=None, lse=None, return_lse=False):
            given, heads, latent, rope, page, causal, scale = self._planned
            need(q_nope.shape[1:] == (heads, latent) and q_pe.shape[1:] == (heads, rope), "queries")
            need(q_nope.is_contiguous() and q_pe.is_contiguous(), "dense queries")
            need(ckv_cache.shape[1:] == (page, latent) and kpe_cache.shape[1:] == (page, rope), "caches")
            need(ckv_cache.stride(-1) == kpe_cache.stride(-1) == 1, "the last dimension is not contiguous")
            need(self._dtypes == (q_nope.dtype, ckv_cache.dtype) == (q_pe.dtype, kpe_cache.dtype), "dtypes")
            out = torch.empty_like(q_nope)
            queries = (q_nope, q_pe, ckv_cache, kpe_cache)
            torch.ops.seam_libraries.attend_latents(*queries, *given, scale, causal, out)
            return out

    package = module(
        monkeypatch,
        "flashinfer",
        BatchAttentionWithAttentionSinkWrapper=BatchAttentionWithAttentionSinkWrapper,
        BatchPrefillWithPagedKVCacheWrapper=BatchPrefillWithPagedKVCacheWrapper,
        BatchDecodeWithPagedKVCacheWrapper=BatchDecodeWithPagedKVCacheWrapper,
    )
    package.__path__ = []
    module(monkeypatch, "flashinfer.mla", BatchMLAPagedAttentionWrapper=BatchMLAPagedAttentionWrapper)
    return wrappers
