"""Timings of the operations of layers and of sampling, at a model's sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from core_plugin_kernels_triton.ops.activation import silu_and_mul
from core_plugin_kernels_triton.ops.logits import mask_tokens
from core_plugin_kernels_triton.ops.lookup import launch_look_up
from core_plugin_kernels_triton.ops.norm import add_rms_norm, rms_norm
from core_plugin_kernels_triton.ops.rotary import rotary
from core_plugin_kernels_triton.ops.sampling import argmax, draw

Call = Callable[[], object]
_MOST_SAMPLED = 256
"""Rows that sample in one step."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A model's sizes, and the `rows` (tokens) of the steps.

    Attributes:
        experts, top_k, expert_size: How many experts a layer has, those of a token, and the inner size of one; 0: none.
        latent: Whether its attention is latent.
    """

    rows: tuple[int, ...]
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    dtype: str
    experts: int = 0
    top_k: int = 0
    expert_size: int = 0
    latent: bool = False


def cases(sizes: Sizes, device: torch.device) -> Mapping[str, Sequence[Call]]:
    """Return kernel of the table -> calls whose time counts."""
    make = partial(torch.randn, dtype=getattr(torch, sizes.dtype), device=device)
    sampled = sorted({min(rows, _MOST_SAMPLED) for rows in sizes.rows})
    return {
        "norm": list(_norms(sizes, make)),
        "activation": [partial(silu_and_mul, make(rows, 2 * sizes.intermediate)) for rows in sizes.rows],
        "rotary": [_rotary(sizes, rows, make) for rows in sizes.rows],
        "embedding": [_embedding(sizes, rows, make) for rows in sizes.rows],
        "argmax": [partial(argmax, make(rows, sizes.vocabulary)) for rows in sampled],
        "draw": [_draw(sizes, rows, make) for rows in sampled],
        "logits": [_mask(sizes, rows, device) for rows in sampled],
    }


def _norms(sizes: Sizes, make: Callable[..., Tensor]) -> Iterator[Call]:
    for rows in sizes.rows:
        x, weight = make(rows, sizes.hidden), make(sizes.hidden)
        yield partial(add_rms_norm, x, x.clone(), weight, 1e-6)
        yield partial(rms_norm, make(rows, sizes.heads, sizes.head_dim), make(sizes.head_dim), 1e-6)


def _rotary(sizes: Sizes, rows: int, make: Callable[..., Tensor]) -> Call:
    q, k = (make(rows, heads, sizes.head_dim) for heads in (sizes.heads, sizes.kv_heads))
    table = make(rows, 2 * sizes.head_dim)
    return partial(rotary, torch.arange(rows, device=q.device), q, k, table)


def _embedding(sizes: Sizes, rows: int, make: Callable[..., Tensor]) -> Call:
    weight, out = make(sizes.vocabulary, sizes.hidden), make(rows, sizes.hidden)
    return partial(launch_look_up, torch.randint(sizes.vocabulary, (rows,), device=out.device), weight, out)


def _draw(sizes: Sizes, rows: int, make: Callable[..., Tensor]) -> Call:
    """Return a draw with top-p, as most requests have it."""
    logits = make(rows, sizes.vocabulary)
    one = torch.tensor([[1.0], [0.0], [0.9], [0.0], [0.5]], dtype=torch.float64, device=logits.device)
    return partial(draw, logits, None, one.expand(5, rows).contiguous(), truncated=True)


def _mask(sizes: Sizes, rows: int, device: torch.device) -> Call:
    logits = torch.randn(rows, sizes.vocabulary, device=device)
    bits = torch.zeros(rows, -(-sizes.vocabulary // 32), dtype=torch.int32, device=device)
    return partial(mask_tokens, logits, bits)
