"""Attention within the prompts of a step, without a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core_plugin_accelerator.paged import PagedPlan, dense_heads
from torch import Tensor

from core.api.attention import AttentionSite


class FlashEncoder:
    """Every token of a prompt sees all others, or those within half a window.

    Args:
        attend: The library's `flash_attn_varlen_func`.
    """

    def __init__(self, site: AttentionSite, attend: Callable[..., Any]) -> None:
        reach = -1 if site.window is None else site.window // 2
        self._attend = attend
        self._terms: dict[str, Any] = {"softmax_scale": site.scale, "causal": False, "window_size": (reach, reach)}
        if site.softcap is not None:
            self._terms["softcap"] = site.softcap

    def forward(self, q: Tensor, k: Tensor, v: Tensor, plan: PagedPlan) -> Tensor:
        """`q (tokens, heads, head_dim)`, `k, v (tokens, kv_heads, head_dim)` -> `(tokens, heads * head_dim)`."""
        if not q.shape[0]:
            return q.flatten(1)
        heads = (dense_heads(one) for one in (q, k, v))
        most, starts = plan.max_query, plan.starts
        return first(self._attend(*heads, starts, starts, most, most, **self._terms)).reshape(q.shape[0], -1)


def first(result: Any) -> Tensor:
    """Return the output of a function that, in some releases, returns the logarithms of the sums beside it."""
    out: Tensor = result[0] if isinstance(result, tuple) else result
    return out
