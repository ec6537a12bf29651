"""Latent attention: every query is a row of its own for the kernel that decodes."""

from __future__ import annotations

import torch
from aiter.mla import mla_decode_fwd
from core_plugin_accelerator.latents import PagedLatent
from torch import Tensor
from torch.nn.functional import pad

from core_plugin_aiter.fits import heads_of
from core_plugin_aiter.plan import AiterPlan


class AiterLatent(PagedLatent):
    """Latent attention of one layer. Queries get heads of zeros up to a number that there are kernels for."""

    def _attend(self, moved: Tensor, q_rope: Tensor, kv: Tensor, plan: AiterPlan) -> Tensor:
        site, heads = self._site, heads_of(self._site.num_heads)
        q = pad(torch.cat((moved, q_rope), dim=-1), (0, 0, 0, heads - site.num_heads)).contiguous()
        out = torch.empty(len(q), heads, site.latent_dim, dtype=q.dtype, device=q.device)
        tokens = kv.view(-1, 1, 1, kv.shape[-1])
        for piece in plan.pieces:
            mla_decode_fwd(
                q[piece.tokens],
                tokens,
                out[piece.tokens],
                piece.starts,
                piece.ends,
                piece.places,
                piece.last,
                1,
                sm_scale=site.scale,
                num_kv_splits=piece.splits,
                num_kv_splits_indptr=piece.split_starts,
            )
        return out[:, : site.num_heads]
