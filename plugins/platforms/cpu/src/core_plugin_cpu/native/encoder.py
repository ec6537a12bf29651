"""Attention within the prompts of a step by native kernels, without a cache."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from core.api.attention import AttentionSite
from core_plugin_cpu.native.attention import Batch, aligned
from core_plugin_cpu.native.checks import code, unfit
from core_plugin_cpu.native.elementwise import packed_heads
from core_plugin_cpu.native.entry import Entry
from core_plugin_cpu.native.library import library

ENCODE = Entry(
    "encode",
    pointers="q k v out query_starts scratch",
    sizes="rows heads kv_heads head_dim q_stride k_stride v_stride out_stride reach dtype threads",
    numbers="scale",
    slots={"query_starts": "query_starts", "rows": "rows"},
)


def scratch_for(site: AttentionSite, threads: int) -> Tensor:
    """Return scratch memory for encoder attention of this geometry with up to `threads` threads, whatever the step."""
    function = library().core_cpu_encode_scratch
    function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_int64
    sizes = (1, site.num_heads, site.num_kv_heads, site.head_dim, 0, 0, 0, 0, 0, 0, threads)
    return aligned(function(ENCODE.pack(*(0,) * 6, *sizes, site.scale)))


def encode(q: Tensor, k: Tensor, v: Tensor, batch: Batch, site: AttentionSite, scratch: Tensor) -> Tensor:
    """Attend to every token of the same row, or to those in reach of `site.window`; shapes as in `EncoderLayer`.

    Args:
        scratch: From `scratch_for` with at least as many threads as torch uses.
    """
    queries = (batch.tokens, site.num_heads, site.head_dim)
    keys = (batch.tokens, site.num_kv_heads, site.head_dim)
    sized = q.shape == queries and k.shape == keys and v.shape == keys
    if not sized or not (q.dtype is k.dtype is v.dtype) or not (k.is_cpu and v.is_cpu):
        raise unfit(f"queries of {queries}, keys and values of {keys} and", q=q, k=k, v=v)
    dtype = code(q, "encode")
    batch.compare(0, 1)
    q, k, v = packed_heads(q), packed_heads(k), packed_heads(v)
    tokens, heads, head_dim = q.shape
    out = torch.empty(tokens, heads * head_dim, dtype=q.dtype)
    pointers = (q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), batch.query_starts, scratch.data_ptr())
    reach = -1 if site.window is None else site.window // 2
    sizes = (batch.rows, heads, site.num_kv_heads, head_dim, q.stride(0), k.stride(0), v.stride(0), heads * head_dim)
    ENCODE(*pointers, *sizes, reach, dtype, torch.get_num_threads(), site.scale)
    return out
