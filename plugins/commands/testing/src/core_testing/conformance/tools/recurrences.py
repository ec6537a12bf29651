"""Arguments for recurrences. Their rows are tokens, of several requests that have states in one memory."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from core.api.states import State, StateRows
from core_testing.conformance.tools.shapes import Maker, OpShape, Sizes

_LENGTHS = (1, 1, 5, 0, 2, 9, 1)
"""Tokens of requests in a step, again and again."""
_CHANNELS = (1, 7, 16, 33, 64, 100, 300)


def _state(make: Maker, tokens: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> State:
    """Return states of requests that together have so many tokens; whatever is nobody's, or counts as zeros, is NaN."""
    starts = [0]
    while starts[-1] < tokens:
        starts.append(min(tokens, starts[-1] + _LENGTHS[(len(starts) - 1) % len(_LENGTHS)]))
    count = len(starts) - 1
    slots = torch.randperm(count + 2, generator=make.rng)[:count]
    fresh = torch.arange(count) % 3 // 2
    memory = torch.full((count + 2, *shape), float("nan"), dtype=dtype)
    memory[slots[fresh == 0]] = torch.randn(int((fresh == 0).sum()), *shape, generator=make.rng).to(dtype)
    return State(memory, StateRows(slots, fresh, np.array(starts, dtype=np.int32)))


def _spans(arguments: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the tokens of the first request, of the last, and of those between."""
    starts = next(one for one in arguments if isinstance(one, State)).rows.starts.tolist()
    return [(0, starts[1]), (starts[-2], starts[-1]), (starts[1], starts[-2])]


def _part(tensors: Sequence[int], arguments: Sequence[Any], begin: int, end: int) -> list[Any]:
    """Return arguments for tokens that are all of some requests, with memory of their own for states."""

    def cut(place: int, one: Any) -> Any:
        if not isinstance(one, State):
            return one[begin:end].clone() if place in tensors and one is not None else one
        first, last = np.searchsorted(one.rows.starts, begin), np.searchsorted(one.rows.starts, end, "right") - 1
        rows = one.rows
        kept = replace(
            rows,
            slots=rows.slots[first:last].clone(),
            fresh=rows.fresh[first:last].clone(),
            starts=rows.starts[first : last + 1] - rows.starts[first],
            twins=None if rows.twins is None else rows.twins[first : last + 1] - rows.twins[first],
        )
        return State(one.memory.clone(), kept)

    return [cut(place, one) for place, one in enumerate(arguments)]


def _below_zero(make: Maker, *shape: int) -> torch.Tensor:
    return -torch.rand(*shape, generator=make.rng)


def _conv(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    tokens, channels, width = sizes["rows"], sizes["channels"], sizes["width"]
    bias = make.weights(channels) if sizes["biased"] else None
    state = _state(make, tokens, (channels, width - 1), make.dtype)
    return make.activations(tokens, channels), make.weights(channels, width), bias, state, bool(sizes["biased"])


def _attention(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    tokens, heads = sizes["rows"], sizes["key_heads"] * sizes["group"]
    key_dim, value_dim = sizes["key_dim"], sizes["value_dim"]
    q, k = (make.activations(tokens, sizes["key_heads"], key_dim) for _ in range(2))
    v = make.activations(tokens, heads, value_dim)
    decay = _below_zero(make, tokens, heads, *(key_dim,) * sizes["per_key"])
    beta = -_below_zero(make, tokens, heads) if sizes["delta"] else None
    # As layers do it: with greater ones the delta rule grows beyond all bounds.
    k = normalize(k.float(), dim=-1).to(make.dtype)
    return q, k, v, decay, beta, _state(make, tokens, (heads, key_dim, value_dim)), key_dim**-0.5


def _scan(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    tokens, channels, state_dim = sizes["rows"], sizes["channels"], sizes["state_dim"]
    x, step = make.activations(tokens, channels), -_below_zero(make, tokens, channels)
    b, c = (make.activations(tokens, state_dim) for _ in range(2))
    return x, step, 4 * _below_zero(make, channels, state_dim), b, c, _state(make, tokens, (channels, state_dim))


def _gated(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    tokens, channels = sizes["rows"], sizes["channels"]
    return make.activations(tokens, channels), _below_zero(make, tokens, channels), _state(make, tokens, (channels,))


def _shape(sizes: Mapping[str, Sequence[int]], make: Any, rows: tuple[int, ...], large: Sizes) -> OpShape:
    def part(arguments: Sequence[Any], begin: int, end: int) -> list[Any]:
        return _part(rows, arguments, begin, end)

    return OpShape(sizes, make, rows, large, part=part, spans=_spans)


RECURRENCES: Mapping[str, OpShape] = types.MappingProxyType(
    {
        "causal_conv": _shape(
            {"channels": _CHANNELS, "width": (2, 3, 4, 5), "biased": (0, 1)},
            _conv,
            (0,),
            {"rows": 64, "channels": 2048, "width": 4, "biased": 1},
        ),
        "linear_attention": _shape(
            {
                "key_heads": (1, 2, 3),
                "group": (1, 2),
                "key_dim": (1, 16, 33, 64),
                "value_dim": (1, 16, 40, 128),
                "per_key": (0, 1),
                "delta": (0, 1),
            },
            _attention,
            (0, 1, 2, 3, 4),
            {"rows": 32, "key_heads": 4, "group": 2, "key_dim": 128, "value_dim": 128, "per_key": 0, "delta": 1},
        ),
        "selective_scan": _shape(
            {"channels": _CHANNELS, "state_dim": (1, 7, 16, 33)},
            _scan,
            (0, 1, 3, 4),
            {"rows": 32, "channels": 2048, "state_dim": 16},
        ),
        "gated_recurrence": _shape({"channels": _CHANNELS}, _gated, (0, 1), {"rows": 64, "channels": 2048}),
    }
)
"""Operation -> how its arguments are made."""
