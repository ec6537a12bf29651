"""The backend: cache layout, plans, and the attention of one layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite, BatchView, KVLayout, Rotation
from core.api.steps import StepShape
from core_plugin_kernels_triton.attention.few import attend_few, memory
from core_plugin_kernels_triton.attention.form import FLOAT8, form_of, power_of_two
from core_plugin_kernels_triton.attention.plan import TritonPlan, fixed_plan, plan_of, refresh
from core_plugin_kernels_triton.attention.prompts import attend_prompts
from core_plugin_kernels_triton.attention.store import store, store_rotated
from core_plugin_kernels_triton.attention.tiles import tiles_for
from core_plugin_kernels_triton.latent.backend import LatentBackend

LOG2_E = math.log2(math.e)


class TritonBackend(LatentBackend):
    """Paged attention in Triton. Block `b` has its keys in `cache[b, 0]`, its values in `cache[b, 1]`."""

    def __init__(self, ctx: AttentionContext) -> None:
        self._ctx = ctx

    def kv_layout(self, site: AttentionSite) -> KVLayout:
        """Return blocks of `(2, block_size, kv_heads, head_dim)`; of bytes, for float8."""
        ctx = self._ctx
        dtype = torch.uint8 if ctx.kv_dtype in FLOAT8 else ctx.kv_dtype
        return KVLayout((2, ctx.block_size, site.num_kv_heads, site.head_dim), dtype)

    def plan(self, batch: BatchView) -> TritonPlan:
        """Prepare a step, for layers of any kind."""
        return plan_of(batch)

    def fixed_plan(self, shape: StepShape) -> TritonPlan:
        """Return a plan that captured graphs read."""
        return fixed_plan(shape, self._ctx.block_size, self._ctx.device)

    def refresh(self, plan: TritonPlan, batch: BatchView) -> None:
        """Fill it for a batch."""
        refresh(plan, batch)

    def layer(self, site: AttentionSite) -> TritonLayer:
        """Return the attention of one layer."""
        return TritonLayer(site, self._ctx)


class TritonLayer:
    """Attention of one layer."""

    def __init__(self, site: AttentionSite, ctx: AttentionContext) -> None:
        self._heads, self._device = site.num_kv_heads, ctx.device
        tiles = tiles_for(ctx.device, power_of_two(site.head_dim) * ctx.dtype.itemsize)
        self._form = form_of(site, ctx.block_size, ctx.kv_dtype, tiles)
        # With a cap the factor stands inside of it; scores are logarithms of base 2.
        cap = site.softcap
        self._inner = site.scale * LOG2_E if cap is None else site.scale / cap
        self._outer = 0.0 if cap is None else cap * LOG2_E
        self._slopes = None if site.slopes is None else torch.tensor(site.slopes, device=ctx.device) * LOG2_E
        self._sinks: Tensor | None = None
        self._key_scales = self._value_scales = torch.ones(site.num_kv_heads, device=ctx.device)

    def use_scales(self, key: Tensor, value: Tensor) -> None:
        """Divide keys and values of a float8 cache by these before they are rounded."""
        self._key_scales, self._value_scales = self._scales(key), self._scales(value)

    def use_sinks(self, sinks: Tensor) -> None:
        """Count `sinks (heads,)` in the softmax of each query."""
        self._sinks = (sinks.float() * LOG2_E).to(self._device)

    def write_kv(self, k: Tensor, v: Tensor, kv: Tensor, plan: TritonPlan) -> None:
        """Store `k, v (tokens, kv_heads, head_dim)` at the plan's slots."""
        if k.shape[0]:
            k, v = _with_dense_heads(k), _with_dense_heads(v)
            store(k, v, kv, plan.slots, self._key_scales, self._value_scales, self._form)

    def write_rotated(
        self, q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, kv: Tensor, plan: TritonPlan
    ) -> Tensor:
        """Store rotated keys, and values, at the plan's slots; return rotated queries."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if q.shape[0]:
            given = [_with_dense_heads(one) for one in (k, v)]
            turn = (rotation.positions.contiguous(), rotation.table, self._key_scales, self._value_scales)
            store_rotated(_with_dense_heads(q), out, *given, kv, plan.slots, *turn, rotation.interleaved, self._form)
        return out

    def forward(self, q: Tensor, kv: Tensor, plan: TritonPlan) -> Tensor:
        """Attend causally; `q (tokens, heads, head_dim)` -> `(tokens, heads * head_dim)`."""
        form, out, q = self._form, q.new_empty(q.shape), _with_dense_heads(q)
        terms = (self._slopes, self._sinks, self._key_scales, self._value_scales, self._inner, self._outer)
        where = (plan.tables, plan.starts, plan.lengths, out)
        many, queries, longest = plan.work(form.few)
        if many:
            attend_prompts(q, kv, *where, *terms, form)
        if queries:
            parts = memory(q, queries * plan.lengths.shape[0], longest, form)
            attend_few(q, kv, *where, *parts, *terms, queries, longest, form)
        return out.flatten(1)

    def _scales(self, given: Tensor) -> Tensor:
        """Return one scale for each kv head, on the device."""
        return given.float().expand(self._heads).contiguous().to(self._device)


def _with_dense_heads(x: Tensor) -> Tensor:
    """Return `x`, the numbers of each head one behind the other."""
    return x if x.stride(-1) == 1 else x.contiguous()
