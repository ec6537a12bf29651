"""Numbers rounded to GGUF's block formats: each block by its own extremes, nearest code."""

from __future__ import annotations

import torch
from torch import Tensor

from core_plugin_cpu.native.blocks import BITS, IQ4, Codes

_SYMMETRIC = ("Q4_0", "Q5_0", "Q8_0")
_MINIMUM = ("Q4_1", "Q5_1")
_HALVES = {"Q3_K": (-32, 31), "Q6_K": (-128, 127)}
"""Formats in which 16 values have a scale, and of what size it is."""


def encode(values: Tensor, kind: str) -> Codes:
    """Return `values (rows, k)` float32 as codes and scales of the integer format `kind`, a key of `blocks.FORMATS`."""
    largest = 2 ** BITS[kind] - 1
    if kind in _SYMMETRIC:
        return _symmetric(values.view(len(values), -1, 32), largest)
    if kind in _MINIMUM:
        return _minimum(values.view(len(values), -1, 32), largest)
    if kind == "Q1_0":
        return _signs(values.view(len(values), -1, 128))
    if kind == "Q2_0":
        return _four_values(values.view(len(values), -1, 64))
    if kind == "IQ4_NL":
        return _numbers_of_table(values.view(len(values), -1, 32))
    grouped = values.view(len(values), -1, 8, 32)
    if kind == "IQ4_XS":
        return _multiples_of_table(grouped)
    if kind in _HALVES:
        return _halves(grouped, largest, *_HALVES[kind])
    return _nested(grouped, largest)


def _symmetric(blocks: Tensor, largest: int) -> Codes:
    """The value of largest magnitude becomes code 0: there is one code more below zero than above."""
    zero = (largest + 1) // 2
    scale = (_extreme(blocks) / -zero).half()
    return Codes(_codes(blocks, scale, zero, largest), scale)


def _minimum(blocks: Tensor, largest: int) -> Codes:
    low, high = blocks.aminmax(dim=-1, keepdim=True)
    scale, low = ((high - low) / largest).half(), low.half()
    return Codes(_codes(blocks - low.float(), scale, 0, largest), torch.cat((scale, low), dim=-1))


def _nested(groups: Tensor, largest: int) -> Codes:
    """Blocks' scales and minima are multiples, 0 to 63, of what their super-block says."""
    low, high = groups.aminmax(dim=-1, keepdim=True)
    below = (-low).clamp_min(0)
    both = torch.cat(((high + below) / largest, below), dim=-1)  # (rows, groups, 8, 2)
    shared = (both.amax(dim=2) / 63).half()
    nested = _divided(both, shared.unsqueeze(2)).clamp(0, 63)
    scale, minimum = (shared.unsqueeze(2).float() * nested).chunk(2, dim=-1)
    codes = _codes(groups + minimum, scale, 0, largest)
    return Codes(codes.flatten(1, 2), shared, nested.to(torch.uint8))


def _halves(groups: Tensor, largest: int, least_scale: int, most_scale: int) -> Codes:
    """Sixteen values have a scale, a multiple of what their super-block says."""
    halves, zero = groups.view(*groups.shape[:3], 2, 16), (largest + 1) // 2
    wanted = _extreme(halves) / -zero
    shared = (wanted.abs().amax(dim=(2, 3)) / most_scale).half()  # (rows, groups, 1)
    nested = _divided(wanted, shared.view(*shared.shape[:2], 1, 1, 1)).clamp(least_scale, most_scale)
    scale = nested * shared.view(*shared.shape[:2], 1, 1, 1).float()
    codes = _codes(halves, scale, zero, largest).flatten(3)
    numbers = nested.flatten(2).to(torch.int8).view(torch.uint8)
    return Codes(codes.flatten(1, 2), shared, numbers)


def _signs(groups: Tensor) -> Codes:
    """The mean magnitude and signs."""
    return _blocks_of((groups >= 0).to(torch.uint8), groups.abs().mean(-1, keepdim=True).half())


def _four_values(groups: Tensor) -> Codes:
    """From -1 to 2 times a scale, of which the largest is twice or all magnitudes are once, whichever is nearer."""
    scales = torch.stack([_extreme(groups) / 2, groups.abs().amax(-1, keepdim=True)]).half()
    codes = _codes(groups, scales, 1, 3)
    misses = ((codes.float() - 1) * scales.float() - groups).square().sum(-1, keepdim=True)
    first = misses[0] <= misses[1]
    return _blocks_of(torch.where(first, codes[0], codes[1]), torch.where(first, scales[0], scales[1]))


def _numbers_of_table(blocks: Tensor) -> Codes:
    """The value of largest magnitude becomes the number of largest magnitude."""
    scale = (_extreme(blocks) / IQ4[0]).half()
    return Codes(_nearest_numbers(blocks, scale), scale)


def _multiples_of_table(groups: Tensor) -> Codes:
    """The same, but scales are multiples, -32 to 31, of what the super-block says."""
    wanted = _extreme(groups) / IQ4[0]  # (rows, groups, 8, 1)
    shared = (wanted.abs().amax(dim=2) / 31).half()
    nested = _divided(wanted, shared.unsqueeze(2)).clamp(-32, 31)
    codes = _nearest_numbers(groups, nested * shared.unsqueeze(2).float())
    return Codes(codes.flatten(1, 2), shared, nested.flatten(2).to(torch.int8).view(torch.uint8))


def _nearest_numbers(values: Tensor, scale: Tensor) -> Tensor:
    """Return the codes whose numbers times `scale` are nearest to `values`."""
    numbers = torch.tensor(IQ4, dtype=torch.float32)
    scale = scale.float()
    wanted = torch.where(scale != 0, values / torch.where(scale != 0, scale, 1.0), 0.0)
    return torch.bucketize(wanted, (numbers[1:] + numbers[:-1]) / 2).to(torch.uint8)


def _blocks_of(codes: Tensor, scales: Tensor) -> Codes:
    return Codes(codes.reshape(len(codes), -1, 32), scales)


def _extreme(values: Tensor) -> Tensor:
    """Return the value of the largest magnitude along the last dimension, which is kept."""
    return values.gather(-1, values.abs().argmax(dim=-1, keepdim=True))


def _divided(values: Tensor, by: Tensor) -> Tensor:
    """Return `values / by`, rounded; 0 where `by` is."""
    by = by.float()
    return torch.where(by != 0, torch.round(values / torch.where(by != 0, by, 1.0)), 0.0)


def _codes(values: Tensor, scale: Tensor, zero: int, largest: int) -> Tensor:
    return (_divided(values, scale) + zero).clamp(0, largest).to(torch.uint8)
