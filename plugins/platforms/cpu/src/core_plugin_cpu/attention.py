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
        self._scratch: dict[tuple[int, ...], Tensor] = {}

    def kv_layout(self, site: AttentionSite) -> KVLayout:
        """Return blocks of `(2, kv_heads, block_size * head_dim)`."""
        return KVLayout(kernels.block_shape(site, self._ctx.block_size), self._ctx.kv_dtype)

    def plan(self, batch: BatchView) -> kernels.Batch:
        """Take the batch as it is: the kernel divides the work by itself."""
        return kernels.Batch.of(batch)

    def layer(self, site: AttentionSite) -> NativeAttentionLayer:
        """Return the attention of one layer."""
        return NativeAttentionLayer(site, self)

    def scratch(self, site: AttentionSite) -> Tensor:
        """Return scratch memory; layers of one geometry share it, because layers run one after the other."""
        threads = torch.get_num_threads()
        key = (site.num_heads, site.num_kv_heads, site.head_dim, threads)
        found = self._scratch.get(key)
        if found is None:
            found = self._scratch[key] = kernels.scratch_for(site, self._ctx.dtype, self._ctx.block_size, threads)
        return found

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._ctx.block_size


class NativeAttentionLayer:
    """Attention of one layer."""

    def __init__(self, site: AttentionSite, backend: NativeAttentionBackend) -> None:
        self._site = site
        self._backend = backend
        self._block_size = backend.block_size

    def write_kv(self, k: Tensor, v: Tensor, kv: Tensor, plan: kernels.Batch) -> None:
        """Store `k, v (tokens, kv_heads, head_dim)` at the plan's slots."""
        kernels.write_kv(k, v, kv, plan, self._block_size)

    def forward(self, q: Tensor, kv: Tensor, plan: kernels.Batch) -> Tensor:
        """Attend causally; `q (tokens, heads, head_dim)` -> `(tokens, heads * head_dim)`."""
        return kernels.attend(q, kv, plan, self._site, self._block_size, self._backend.scratch(self._site))
