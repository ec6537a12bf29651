"""Latent attention of one layer: queries are moved to the latents, and what they gather of these becomes values."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from core.api.attention import AttentionContext, KVLayout, LatentSite
from core_plugin_kernels_triton.attention.form import FLOAT8
from core_plugin_kernels_triton.attention.plan import TritonPlan
from core_plugin_kernels_triton.latent.attend import launch_latent, memory
from core_plugin_kernels_triton.latent.form import FEW, form_of
from core_plugin_kernels_triton.latent.store import store_rows

LOG2_E = math.log2(math.e)


def layout(width: int, ctx: AttentionContext) -> KVLayout:
    """Return blocks of `(block_size, width)`; of bytes, for float8."""
    return KVLayout((ctx.block_size, width), torch.uint8 if ctx.kv_dtype in FLOAT8 else ctx.kv_dtype)


class TritonLatent:
    """Latent attention of one layer. Prompts are computed in the absorbed form, too."""

    def __init__(self, site: LatentSite, ctx: AttentionContext) -> None:
        self._site, self._form = site, form_of(site, ctx)
        self._key = self._value = torch.empty(0)

    def use_up(self, key: Tensor, value: Tensor) -> None:
        """Use `key (heads, key_dim, latent_dim)` and `value (heads, latent_dim, value_dim)` from now on."""
        self._key, self._value = key, value

    def write(self, latent: Tensor, rope_key: Tensor, kv: Tensor, plan: TritonPlan) -> None:
        """Store `latent (tokens, latent_dim)` and `rope_key (tokens, rope_dim)` at the plan's slots."""
        if len(latent):
            store_rows(latent, kv, plan.slots, 0, self._form.float8)
            store_rows(rope_key, kv, plan.slots, self._site.latent_dim, self._form.float8)

    def forward(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: TritonPlan) -> Tensor:
        """`q (tokens, heads, key_dim)`, `q_rope (tokens, heads, rope_dim)` -> `(tokens, heads * value_dim)`."""
        return self._run(q, q_rope, kv, plan, None)

    def forward_picked(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: TritonPlan, picked: Tensor) -> Tensor:
        """As `forward`, by the positions `picked (tokens, picks)`; -1 stands for none."""
        return self._run(q, q_rope, kv, plan, picked.contiguous())

    def _run(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: TritonPlan, picked: Tensor | None) -> Tensor:
        site, form = self._site, self._form
        if not len(q):
            return q.new_empty(0, site.num_heads * site.value_dim)
        moved = torch.bmm(q.transpose(0, 1), self._key).transpose(0, 1)
        q_rope = q_rope if q_rope.stride(2) == 1 else q_rope.contiguous()
        found = q.new_empty(len(q), site.num_heads, site.latent_dim)
        many, queries, longest = plan.work(FEW)
        parts = memory(q, 0 if picked is not None else queries * len(plan.lengths), longest, form)
        where = (plan.tables, plan.starts, plan.lengths, picked, found)
        launch_latent(moved, q_rope, kv, *where, *parts, site.scale * LOG2_E, many, queries, longest, form)
        return torch.bmm(found.transpose(0, 1), self._value).transpose(0, 1).flatten(1)
