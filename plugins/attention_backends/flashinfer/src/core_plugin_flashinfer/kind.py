"""Kinds of layers, which need plans of their own."""

from __future__ import annotations

from typing import NamedTuple

import torch

from core.api.attention import AttentionSite, LatentSite


class Kind(NamedTuple):
    """Geometry and terms of layers that share a plan.

    Attributes:
        window: Keys before its own that a query sees; -1: all.
        cap: 0: none.
        sinks: Whether each head has one.
    """

    heads: int
    kv_heads: int
    dim: int
    scale: float
    window: int
    cap: float
    sinks: bool

    @property
    def tensor_cores(self) -> bool:
        """Whether decoding has enough heads to a kv head to fill tiles of products."""
        return self.heads // self.kv_heads >= 4


class LatentKind(NamedTuple):
    """Geometry of layers with latent attention that share a plan."""

    heads: int
    latent_dim: int
    rope_dim: int
    scale: float


def kind_of(site: AttentionSite) -> Kind:
    """Return the kind of a layer."""
    window = -1 if site.window is None else site.window - 1
    geometry = (site.num_heads, site.num_kv_heads, site.head_dim, site.scale)
    return Kind(*geometry, window, site.softcap or 0.0, site.sinks)


def latent_kind_of(site: LatentSite) -> LatentKind:
    """Return the kind of a layer with latent attention."""
    return LatentKind(site.num_heads, site.latent_dim, site.rope_dim, site.scale)


def largest(dtype: torch.dtype) -> float:
    """Return the greatest number of a float8 dtype."""
    return float(torch.finfo(dtype).max)
