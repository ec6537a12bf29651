"""Attention backends with the feature `bidirectional`: whole prompts against dense attention in float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite
from core.api.descriptors import AttentionSpec
from core_testing.conformance.outcome import NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import device_of, dtype_of, largest_difference, plainest
from core_testing.conformance.tools.encoder import whole_prompts
from core_testing.conformance.tools.plain import encode_plainly

LENGTHS = (1, 70, 33, 3, 17, 33, 1, 5, 4, 16)
_TOLERANCE = {"float32": 4e-3, "bfloat16": 5e-2, "float16": 8e-3}
_BLOCK = 16


def bidirectional_matches_reference(subject: Subject) -> None:
    """Prompts of several lengths in one step, with heads that share keys, in every declared dtype."""
    spec = _spec(subject)
    for dtype in sorted(spec.dtypes):
        for heads, kv_heads in ((4, 4), (4, 2), (6, 1)):
            _compare(subject, _site(spec, heads, kv_heads), LENGTHS, dtype)


def bidirectional_windows_match_reference(subject: Subject) -> None:
    """Tokens see only so far to both sides, where the backend has windows at all."""
    spec = _spec(subject)
    if "sliding_window" not in spec.features:
        raise NotApplicable("it does not declare sliding_window")
    for window in (1, 7, 33, 201):
        _compare(subject, _site(spec, 4, 4, window), LENGTHS, plainest(spec.dtypes))


def position_biases_match_reference(subject: Subject) -> None:
    """Biases that a model adds to scores by position are added, in every declared dtype, also beside a window."""
    spec = _spec(subject)
    if "position_bias" not in spec.features:
        raise NotApplicable("it does not declare position_bias")

    def bias(length: int, device: torch.device) -> Tensor:
        ramp = torch.arange(length, device=device)
        return torch.stack([torch.sin((ramp - ramp[:, None]) * (head + 1.0)) * 2 for head in range(4)])

    windows = (None, 9) if "sliding_window" in spec.features else (None,)
    for dtype in sorted(spec.dtypes):
        for window in windows:
            _compare(subject, replace(_site(spec, 4, 2, window), bias=bias), LENGTHS, dtype)


def bidirectional_rows_are_independent(subject: Subject) -> None:
    """Other rows of a step change nothing for a prompt."""
    spec = _spec(subject)
    dtype, site = plainest(spec.dtypes), _site(spec, 4, 2)
    q, k, v = _inputs(subject, site, LENGTHS, dtype)
    starts = np.concatenate([[0], np.cumsum(LENGTHS)])
    together = _run(subject, site, LENGTHS, dtype, (q, k, v))
    for begin, end in pairwise(starts.tolist()):
        mine = slice(begin, end)
        alone = _run(subject, site, (end - begin,), dtype, (q[mine], k[mine], v[mine]))
        error = largest_difference(alone, together[mine])
        require(error <= _TOLERANCE[dtype], f"a prompt of {end - begin} tokens is off by {error:.2g} beside others")


def _compare(subject: Subject, site: AttentionSite, lengths: Sequence[int], dtype: str) -> None:
    inputs = _inputs(subject, site, lengths, dtype)
    found = _run(subject, site, lengths, dtype, inputs)
    starts = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    expected = encode_plainly(*inputs, starts, site)
    require(tuple(found.shape) == tuple(expected.shape), f"gives {tuple(found.shape)}, not {tuple(expected.shape)}")
    error, allowed = largest_difference(found, expected), _TOLERANCE[dtype]
    require(error <= allowed, f"{site} in {dtype} is off by {error:.2g}, allowed {allowed:g}")


def _run(
    subject: Subject, site: AttentionSite, lengths: Sequence[int], dtype: str, inputs: tuple[Tensor, Tensor, Tensor]
) -> Tensor:
    device, kind = device_of(subject), dtype_of(dtype)
    backend = subject.impl()(AttentionContext(device, kind, kind, _BLOCK))
    layer = backend.encoder(site)
    with torch.inference_mode():
        found: Tensor = layer.forward(*inputs, backend.plan(whole_prompts(lengths, device)))
    return found


def _inputs(subject: Subject, site: AttentionSite, lengths: Sequence[int], dtype: str) -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(len(lengths))
    device, kind = device_of(subject), dtype_of(dtype)
    heads = (site.num_heads, site.num_kv_heads, site.num_kv_heads)
    q, k, v = (torch.randn(sum(lengths), count, site.head_dim, generator=rng).to(device, kind) for count in heads)
    return q, k, v


def _site(spec: AttentionSpec, heads: int, kv_heads: int, window: int | None = None) -> AttentionSite:
    dim = 32 if spec.head_dims is None or 32 in spec.head_dims else min(spec.head_dims)
    return AttentionSite(0, heads, kv_heads, dim, dim**-0.5, window)


def _spec(subject: Subject) -> AttentionSpec:
    spec = subject.spec(AttentionSpec)
    if "bidirectional" not in spec.features:
        raise NotApplicable("it does not declare bidirectional")
    return spec


CHECKS = checks(
    bidirectional_matches_reference,
    bidirectional_windows_match_reference,
    position_biases_match_reference,
    bidirectional_rows_are_independent,
    on_device=True,
)
