"""Latent attention of one layer: queries are moved to the latents, and what they gather of these becomes values."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from core.api.attention import AttentionContext, KVLayout, LatentSite
from core_plugin_kernels_triton.attention.form import FLOAT8
from core_plugin_kernels_triton.attention.plan import TritonPlan
from core_plugin_kernels_triton.latent.attend import launch_latent, memory
from core_plugin_kernels_triton.latent.expand import attend_expanded, expanded_rows
from core_plugin_kernels_triton.latent.form import FEW, form_of
from core_plugin_kernels_triton.latent.store import store_rows

LOG2_E = math.log2(math.e)
NEVER = 2**30
"""More tokens than any row has."""


def layout(width: int, ctx: AttentionContext) -> KVLayout:
    """Return blocks of `(block_size, width)`; of bytes, for float8."""
    return KVLayout((ctx.block_size, width), torch.uint8 if ctx.kv_dtype in FLOAT8 else ctx.kv_dtype)


class TritonLatent:
    """Latent attention of one layer: absorbed, and of prompts expanded where that is less work."""

    def __init__(self, site: LatentSite, ctx: AttentionContext) -> None:
        self._site, self._form = site, form_of(site, ctx)
        self._key = self._value = torch.empty(0)
        self._scale = 1.0

    def use_up(self, key: Tensor, value: Tensor) -> None:
        """Use `key (heads, key_dim, latent_dim)` and `value (heads, latent_dim, value_dim)` from now on."""
        self._key, self._value = key, value

    def use_scales(self, key: Tensor, value: Tensor) -> None:
        """Divide what a float8 cache keeps of a token by `key` before it is rounded; `value` is the same."""
        self._scale = float(key)

    def write(self, latent: Tensor, rope_key: Tensor, kv: Tensor, plan: TritonPlan) -> None:
        """Store `latent (tokens, latent_dim)` and `rope_key (tokens, rope_dim)` at the plan's slots."""
        if len(latent):
            store_rows(latent, kv, plan.slots, 0, self._form.float8, self._scale)
            store_rows(rope_key, kv, plan.slots, self._site.latent_dim, self._form.float8, self._scale)

    def forward(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: TritonPlan) -> Tensor:
        """`q (tokens, heads, key_dim)`, `q_rope (tokens, heads, rope_dim)` -> `(tokens, heads * value_dim)`."""
        return self._run(q, q_rope, kv, plan, None)

    def forward_picked(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: TritonPlan, picked: Tensor) -> Tensor:
        """As `forward`, by the positions `picked (tokens, picks)`; -1 stands for none."""
        return self._run(q, q_rope, kv, plan, picked.contiguous())

    def _run(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: TritonPlan, picked: Tensor | None) -> Tensor:
        out = q.new_empty(len(q), self._site.num_heads, self._site.value_dim)
        q, q_rope = (one if one.stride(2) == 1 else one.contiguous() for one in (q, q_rope))
        expanded = np.zeros(0, np.int64) if picked is not None else self._expanded(plan)
        for row in expanded.tolist():
            first, count, length = int(plan.firsts[row]), int(plan.counts[row]), int(plan.seq_lens[row])
            up, scale = (self._key, self._value), self._factor
            attend_expanded(q, q_rope, *up, kv, plan.tables[row], out, (first, count, length), scale, self._form)
        spans = _between(plan, expanded, len(q))
        if spans:
            self._absorbed(q, q_rope, kv, plan, picked, out, spans, len(expanded))
        # Both forms read what is stored: results are linear in it.
        return out.flatten(1) if self._scale == 1.0 else out.mul_(self._scale).flatten(1)

    @property
    def _factor(self) -> float:
        """Factor of scores with what is stored, as logarithms of base 2."""
        return self._site.scale * self._scale * LOG2_E

    def _expanded(self, plan: TritonPlan) -> np.ndarray:
        """Return the rows that are expanded."""
        if plan.shape is not None or not plan.work(FEW).many:
            return np.zeros(0, np.int64)
        return expanded_rows(plan.counts, plan.seq_lens, self._form)

    def _absorbed(
        self,
        q: Tensor,
        q_rope: Tensor,
        kv: Tensor,
        plan: TritonPlan,
        picked: Tensor | None,
        out: Tensor,
        spans: list[slice],
        expanded: int,
    ) -> None:
        """Attend with the tokens of `spans`, which are those of all rows but the `expanded` ones."""
        site, form = self._site, self._form
        moved = q.new_empty(site.num_heads, len(q), site.latent_dim)
        for span in spans:
            moved[:, span] = torch.bmm(q[span].transpose(0, 1), self._key)
        moved = moved.transpose(0, 1)
        found = q.new_empty(len(q), site.num_heads, site.latent_dim)
        many, queries, longest = plan.work(FEW)
        if plan.shape is None:
            many = bool((plan.counts > FEW).sum() > expanded)
        else:  # the host does not know which rows would be expanded: none is
            form = form._replace(fewest=NEVER)
        parts = memory(q, 0 if picked is not None else queries * len(plan.lengths), longest, form)
        where = (plan.tables, plan.starts, plan.lengths, picked, found)
        launch_latent(moved, q_rope, kv, *where, *parts, self._factor, many, queries, longest, form)
        for span in spans:
            out[span] = torch.bmm(found[span].transpose(0, 1), self._value).transpose(0, 1)


def _between(plan: TritonPlan, rows: np.ndarray, tokens: int) -> list[slice]:
    """Return the tokens of a step that belong to none of these rows, which are in order."""
    begins = [0, *(plan.firsts[rows] + plan.counts[rows]).tolist()]
    ends = [*plan.firsts[rows].tolist(), tokens]
    return [slice(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end]
