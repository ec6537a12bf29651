"""Latent attention by FlashInfer: one wrapper computes steps of all kinds, in the absorbed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from core_plugin_accelerator.latents import PagedLatent
from flashinfer.mla import BatchMLAPagedAttentionWrapper
from torch import Tensor

from core.api.attention import AttentionContext, LatentSite
from core.api.errors import ConfigError
from core_plugin_flashinfer.kind import LatentKind, latent_kind_of
from core_plugin_flashinfer.options import FlashInferOptions
from core_plugin_flashinfer.planning import Planning
from core_plugin_flashinfer.step import InferPlan, StepPages, index_memory
from core_plugin_flashinfer.wrappers import wrapper_of

TILE = 64
"""Pairs of a query and a head that the library computes together; 128 where rows have more than 64 on average."""

MOST_TILES = 16384 - 512
"""Tiles of a step that the library's plan has memory for, less what splits of contexts may add."""


class LatentPlanning(Planning):
    """Plans of layers with latent attention.

    Raises:
        ConfigError: CORE-C111, for `splits=false`: the library always splits contexts by all rows of a step.
    """

    def __init__(
        self, kind: LatentKind, ctx: AttentionContext, options: FlashInferOptions, workspace: Callable[[], Tensor]
    ) -> None:
        super().__init__(ctx, options, workspace)
        if not options.splits:
            raise ConfigError(
                "CORE-C111",
                "flashinfer.splits=false: FlashInfer's latent attention splits contexts by all rows of a step.",
                hint="Leave the option out, or take --attention-backend triton.",
            )
        self._kind, self._backend = kind, backend_for(ctx.device)

    def _made(self, *, single: bool) -> Any:
        return BatchMLAPagedAttentionWrapper(self._workspace(), backend=self._backend)

    def _made_fixed(self, rows: int, pages: int) -> Any:
        names = ("qo_indptr", "kv_indptr", "kv_indices", "kv_len_arr")
        memory = index_memory((rows + 1, rows + 1, pages, rows), self._ctx.device)
        buffers = dict(zip(names, memory, strict=True))
        return BatchMLAPagedAttentionWrapper(self._workspace(), use_cuda_graph=True, backend=self._backend, **buffers)

    def _told(self, step: StepPages) -> tuple[tuple[Any, ...], dict[str, Any]]:
        busy, kind, ctx = step.busy(), self._kind, self._ctx
        if (tiles := tiles_of(busy.begins, kind.heads)) > MOST_TILES:
            raise ValueError(
                f"FlashInfer plans at most {MOST_TILES} tiles of {2 * TILE} queries and heads, and this step has "
                f"{tiles}: set --max-num-batched-tokens to at most {MOST_TILES * 2 * TILE // kind.heads}."
            )
        return (), {
            "qo_indptr": busy.starts,
            "kv_indptr": busy.pages.starts,
            "kv_indices": busy.pages.places,
            "kv_len_arr": busy.pages.lengths,
            "num_heads": kind.heads,
            "head_dim_ckv": kind.latent_dim,
            "head_dim_kpe": kind.rope_dim,
            "page_size": ctx.block_size,
            # One token sees all that is there: nothing has to be hidden.
            "causal": not step.single,
            "sm_scale": kind.scale,
            "q_data_type": ctx.dtype,
            "kv_data_type": ctx.kv_dtype,
        }


def tiles_of(begins: np.ndarray, heads: int) -> int:
    """Return how many tiles the queries of rows have that begin there; each row has at least one."""
    pairs = np.diff(begins).astype(np.int64) * heads
    size = 2 * TILE if pairs.sum() // len(pairs) > TILE else TILE
    return int((-(-pairs // size)).sum())


def backend_for(device: torch.device) -> str:
    """Return the library's name of its kernels for a device: it has others for Hopper."""
    hopper = device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)
    return "fa3" if hopper else "fa2"


class FlashInferLatent(PagedLatent):
    """Latent attention of one layer."""

    def __init__(self, site: LatentSite, ctx: AttentionContext) -> None:
        super().__init__(site, ctx)
        self._kind = latent_kind_of(site)

    def _attend(self, moved: Tensor, q_rope: Tensor, kv: Tensor, plan: InferPlan) -> Tensor:
        latents, rotated = kv.split_with_sizes((self._site.latent_dim, self._site.rope_dim), dim=-1)
        out: Tensor = wrapper_of(plan, self._kind).run(
            q_nope=moved.contiguous(), q_pe=q_rope.contiguous(), ckv_cache=latents, kpe_cache=rotated
        )
        return out
