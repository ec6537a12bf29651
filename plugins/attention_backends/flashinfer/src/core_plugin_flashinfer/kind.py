"""What makes layers need plans of their own."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from core.api.attention import AttentionContext, AttentionSite


class Kind(NamedTuple):
    """Geometry and terms of layers that share a plan.

    Attributes:
        window: Keys before its own that a query sees; -1: all.
        cap: 0: none.
    """

    heads: int
    kv_heads: int
    dim: int
    scale: float
    window: int
    cap: float

    @property
    def tensor_cores(self) -> bool:
        """Whether decoding has enough heads to a kv head to fill tiles of products."""
        return self.heads // self.kv_heads >= 4

    def arguments(self, ctx: AttentionContext, *, splits: bool) -> dict[str, Any]:
        """Return what both wrappers' `plan` takes by name."""
        named: dict[str, Any] = {
            "window_left": self.window,
            "logits_soft_cap": self.cap,
            "sm_scale": self.scale,
            "q_data_type": ctx.dtype,
            "kv_data_type": ctx.kv_dtype,
        }
        return named if splits else {**named, "disable_split_kv": True}


def kind_of(site: AttentionSite) -> Kind:
    """Return the kind of a layer."""
    window = -1 if site.window is None else site.window - 1
    return Kind(site.num_heads, site.num_kv_heads, site.head_dim, site.scale, window, site.softcap or 0.0)


def largest(dtype: torch.dtype) -> float:
    """Return the greatest number of a float8 dtype."""
    return float(torch.finfo(dtype).max)
