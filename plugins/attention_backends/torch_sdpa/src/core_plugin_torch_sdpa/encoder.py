"""Attention within the prompts of a step, every token to every other, without a cache."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from core.api.attention import AttentionSite
from core_plugin_torch_sdpa.groups import Group
from core_plugin_torch_sdpa.plan import SdpaPlan


class TorchSdpaEncoder:
    """Encoder attention of one layer."""

    def __init__(self, site: AttentionSite) -> None:
        self._site = site
        self._shared = site.num_heads != site.num_kv_heads
        self._reach = None if site.window is None else site.window // 2

    def forward(self, q: Tensor, k: Tensor, v: Tensor, plan: SdpaPlan) -> Tensor:
        """Attend within each prompt; shapes as in `EncoderLayer.forward`."""
        out = q.new_empty(q.shape)
        division = plan.encoder.get()
        for run in division.runs:
            queries, keys, values = (x[run.begin : run.end].view(-1, run.length, *x.shape[1:]) for x in (q, k, v))
            found = self._attend(queries, keys, values, self._mask(run.length, q))
            out[run.begin : run.end].view(found.shape).copy_(found)
        for group in division.groups:
            found = self._attend(q[group.index], k[group.index], v[group.index], self._group_mask(group, q))
            out.index_copy_(0, group.tokens, found.flatten(0, 1).index_select(0, group.places))
        return out.flatten(1)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Attend; all are `(prompts, length, heads, head_dim)`, and so is the result."""
        queries, keys, values = (x.transpose(1, 2) for x in (q, k, v))
        out = scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, scale=self._site.scale, enable_gqa=self._shared
        )
        return out.transpose(1, 2)

    def _group_mask(self, group: Group, like: Tensor) -> Tensor | None:
        mask = self._mask(group.index.shape[1], like)
        if mask is None or group.mask is None:
            return group.mask if mask is None else mask
        return mask + group.mask

    def _mask(self, length: int, like: Tensor) -> Tensor | None:
        """Return what is added to scores, `(length, length)` or `(heads, length, length)`; None if nothing is."""
        local = self._local(length, like)
        if self._site.bias is None:
            return local
        bias = self._site.bias(length, like.device).to(like.dtype)
        return bias if local is None else bias + local

    def _local(self, length: int, like: Tensor) -> Tensor | None:
        """Return `(length, length)` additive, hiding what is out of reach; None if nothing is."""
        if self._reach is None or self._reach >= length - 1:
            return None
        ramp = torch.arange(length, device=like.device)
        far = (ramp[:, None] - ramp).abs() > self._reach
        return torch.zeros(far.shape, dtype=like.dtype, device=like.device).masked_fill_(far, float("-inf"))
