"""Arguments for the operations that choose tokens, and that change logits before."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from core.ops.sampling import MIN_P, TEMPERATURE, TOP_K, TOP_P, UNIFORM
from core.ops.truncation import cutoffs
from core_testing.conformance.tools.shapes import Maker, Named, OpShape, Sizes

_EDGE = 1e-5
"""Probability that sums of float32 may be off by."""

_VOCABULARIES = (1, 2, 31, 64, 97, 1000, 4099)


def _argmax(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    logits = make.activations(sizes["rows"], sizes["vocabulary"])
    # Equal values, of which the first counts.
    return (logits.mul(4).round().div(4),)


def _settle_argmax(arguments: Sequence[Any], found: list[Tensor], due: list[Tensor]) -> list[Tensor]:
    """A row that holds a NaN has any place."""
    best, places = due
    free = best.isnan() & (found[1] >= 0) & (found[1] < arguments[0].shape[-1])
    return [found[0], torch.where(free, places, found[1])]


def _draw(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    rows, vocabulary, entries = sizes["rows"], sizes["vocabulary"], sizes["rows"]
    logits = make.activations(rows, vocabulary).mul(2)
    chosen = make.indices(entries, rows) if sizes["indexed"] and rows else None
    uniform = torch.rand(4, entries, generator=make.rng, dtype=torch.float64)
    numbers = torch.zeros(5, entries, dtype=torch.float64)
    numbers[TEMPERATURE] = 0.5 + uniform[0]
    numbers[UNIFORM] = uniform[1]
    numbers[TOP_P] = 1.0
    if sizes["truncated"]:
        numbers[TOP_K] = (uniform[2] * min(vocabulary, 50)).floor()
        numbers[TOP_P] = 0.5 + uniform[3] / 2
        numbers[MIN_P] = uniform[2] / 10
    return logits, chosen, numbers, Named(truncated=bool(sizes["truncated"]))


def _settle_draw(arguments: Sequence[Any], found: list[Tensor], due: list[Tensor]) -> list[Tensor]:
    """An unsound row has any token, and rounding may move a draw over the edge between two of them."""
    logits, rows, numbers, named = arguments
    values, token = (logits if rows is None else logits[rows]).float(), found[0]
    if not values.numel() or token.shape != due[0].shape or not bool(((token >= 0) & (token < values.shape[-1])).all()):
        return found
    best = values.amax(-1, keepdim=True)
    sound = best.isfinite()
    scaled = torch.where(sound, values - best, 0.0) / numbers[TEMPERATURE, :, None].float()
    if named["truncated"]:
        low = cutoffs(
            scaled, numbers[TOP_K, :, None].long(), *(numbers[row, :, None].float() for row in (TOP_P, MIN_P))
        )
        scaled = scaled.masked_fill(scaled < low, float("-inf"))
    share = scaled.double().softmax(-1)
    end, size = (one.gather(1, token[:, None]).flatten() for one in (share.cumsum(-1), share))
    close = (size > 0) & (end - size - _EDGE <= numbers[UNIFORM]) & (numbers[UNIFORM] < end + _EDGE)
    return [torch.where(close | ~sound.flatten(), due[0], token)]


def _part_of_draw(arguments: Sequence[Any], begin: int, end: int) -> list[Any]:
    logits, rows, numbers, named = arguments
    if rows is None:
        return [logits[begin:end].clone(), None, numbers[:, begin:end].contiguous(), named]
    return [logits, rows[begin:end].clone(), numbers[:, begin:end].contiguous(), named]


def _mask_tokens(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    rows, vocabulary = sizes["rows"], sizes["vocabulary"]
    words = -(-vocabulary // 32) + sizes["spare"]
    bits = torch.randint(-(2**31), 2**31, (rows, words), generator=make.rng)
    return make.activations(rows, vocabulary), bits.int()


def _add_bias(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    rows, vocabulary = sizes["rows"], sizes["vocabulary"]
    each = min(vocabulary, 7)
    ids = [torch.randperm(vocabulary, generator=make.rng)[:each] for _ in range(rows)]
    places = torch.arange(rows).repeat_interleave(each)
    tokens = torch.cat(ids) if ids else torch.zeros(0, dtype=torch.int64)
    return make.activations(rows, vocabulary), places, tokens, torch.randn(len(tokens), generator=make.rng) * 10


def _penalize(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    rows, vocabulary = sizes["rows"], sizes["vocabulary"]
    chosen = torch.randperm(rows, generator=make.rng)[: (rows + 1) // 2]
    counts = torch.randint(0, 4, (len(chosen), vocabulary), generator=make.rng, dtype=torch.int32)
    prompt = torch.rand(len(chosen), vocabulary, generator=make.rng) < 0.3
    strengths = torch.rand(3, len(chosen), generator=make.rng) + torch.tensor([[0.5], [-0.5], [-0.5]])
    return make.activations(rows, vocabulary), chosen, counts, prompt, strengths


def _alone(arguments: Sequence[Any]) -> list[tuple[int, int]]:
    """Return no spans: such an operation changes its argument, and gives nothing that parts could be compared by."""
    return []


_ROWS = {"rows": 64, "vocabulary": 32000}
CHOOSING: Mapping[str, OpShape] = types.MappingProxyType(
    {
        "argmax": OpShape({"vocabulary": _VOCABULARIES}, _argmax, (0,), _ROWS, settle=_settle_argmax),
        "draw": OpShape(
            {"vocabulary": _VOCABULARIES, "indexed": (0, 1), "truncated": (0, 1)},
            _draw,
            (0,),
            {**_ROWS, "rows": 32, "indexed": 0, "truncated": 0},
            settle=_settle_draw,
            part=_part_of_draw,
        ),
        "mask_tokens": OpShape(
            {"vocabulary": _VOCABULARIES, "spare": (0, 1)}, _mask_tokens, (0, 1), {**_ROWS, "spare": 0}, spans=_alone
        ),
        "add_bias": OpShape({"vocabulary": _VOCABULARIES}, _add_bias, (0,), _ROWS, spans=_alone),
        "penalize": OpShape({"vocabulary": _VOCABULARIES}, _penalize, (0,), _ROWS, spans=_alone),
    }
)
"""Operation -> how its arguments are made."""
