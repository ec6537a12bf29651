"""The attention backend `cpu_native`: cache layout, plans and layers over the native kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite, BatchView, KVLayout
from core_plugin_cpu.native import attention as kernels


class NativeAttentionBackend:
    """Paged attention by `libcore_cpu`. What a block holds is described in `csrc/cpu/attention/attention.h`."""

    def __init__(self, ctx: AttentionContext) -> None:
        self._ctx = ctx
        self._caches: dict[tuple[int, ...], kernels.Cache] = {}

    def kv_layout(self, site: AttentionSite) -> KVLayout:
        """Return blocks of `(2, kv_heads, block_size * head_dim)`; int8 with the tokens' scales behind them."""
        return kernels.kv_layout(site, self._ctx.block_size, self._ctx.kv_dtype)

    def plan(self, batch: BatchView) -> kernels.Batch:
        """Take the batch as it is: the kernel divides the work by itself."""
        return kernels.Batch.of(batch)

    def layer(self, site: AttentionSite) -> NativeAttentionLayer:
        """Return the attention of one layer."""
        return NativeAttentionLayer(site, self)

    def cache(self, site: AttentionSite) -> kernels.Cache:
        """Return how to read the cache; layers of one geometry share scratch memory, because they run in turn."""
        threads = torch.get_num_threads()
        key = (site.num_heads, site.num_kv_heads, site.head_dim, threads)
        found = self._caches.get(key)
        if found is None:
            ctx = self._ctx
            scratch = kernels.scratch_for(site, ctx.dtype, ctx.block_size, threads)
            found = self._caches[key] = kernels.Cache(ctx.block_size, ctx.kv_dtype, scratch)
        return found


class NativeAttentionLayer:
    """Attention of one layer."""

    def __init__(self, site: AttentionSite, backend: NativeAttentionBackend) -> None:
        self._site = site
        self._backend = backend

    def write_kv(self, k: Tensor, v: Tensor, kv: Tensor, plan: kernels.Batch) -> None:
        """Store `k, v (tokens, kv_heads, head_dim)` at the plan's slots."""
        kernels.write_kv(k, v, kv, plan, self._backend.cache(self._site))

    def forward(self, q: Tensor, kv: Tensor, plan: kernels.Batch) -> Tensor:
        """Attend causally; `q (tokens, heads, head_dim)` -> `(tokens, heads * head_dim)`."""
        return kernels.attend(q, kv, plan, self._site, self._backend.cache(self._site))
