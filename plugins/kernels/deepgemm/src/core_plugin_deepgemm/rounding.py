"""Codes and scales in float8 (e4m3): blocks of weights, runs of activations."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 128
MOST = 448.0
CODES = torch.float8_e4m3fn


def round_runs(x: Tensor, *, powers: bool) -> tuple[Tensor, Tensor]:
    """Return activations `(tokens, inputs)` as codes, and a float32 scale for each run, `(tokens, inputs / 128)`.

    Args:
        powers: Scales are powers of two, none smaller than the plain ones.
    """
    runs = x.float().reshape(*x.shape[:-1], -1, BLOCK)
    scales = _scales(runs.abs().amax(-1, keepdim=True), powers=powers)
    codes = (runs / scales).clamp(-MOST, MOST).to(CODES)
    return codes.flatten(-2), scales.squeeze(-1)


def round_blocks(weight: Tensor, *, powers: bool) -> tuple[Tensor, Tensor]:
    """Return plain numbers `(outputs, inputs)` as codes, and a float32 scale for each block of 128 x 128."""
    outputs, inputs = weight.shape
    size = (-(-outputs // BLOCK), -(-inputs // BLOCK))
    padded = torch.nn.functional.pad(weight.float(), (0, size[1] * BLOCK - inputs, 0, size[0] * BLOCK - outputs)).view(
        size[0], BLOCK, size[1], BLOCK
    )
    scales = _scales(padded.abs().amax((1, 3), keepdim=True), powers=powers)
    codes = (padded / scales).clamp(-MOST, MOST).to(CODES).view(size[0] * BLOCK, size[1] * BLOCK)
    return codes[:outputs, :inputs], scales[:, 0, :, 0]


def to_powers(codes: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights whose scales are powers of two: each is rounded up, and codes are rounded again.

    Args:
        codes: `(outputs, inputs)`.
        scales: `(outputs / 128, inputs / 128)` float32, rounded up.
    """
    powers = power_above(scales)
    factor = (scales / powers).repeat_interleave(BLOCK, 0)[: codes.shape[0]]
    factor = factor.repeat_interleave(BLOCK, 1)[:, : codes.shape[1]]
    return (codes.float() * factor).to(CODES), powers


def power_above(scales: Tensor) -> Tensor:
    """Return the least powers of two that are no smaller than positive float32 numbers."""
    mantissa, exponent = torch.frexp(scales)
    return torch.ldexp(torch.ones_like(scales), torch.where(mantissa == 0.5, exponent - 1, exponent))


def _scales(largest: Tensor, *, powers: bool) -> Tensor:
    """Return what codes are multiplied with where these are the largest magnitudes: 1 where all are 0."""
    scales = torch.where(largest > 0, largest / MOST, 1.0)
    return power_above(scales) if powers else scales
