"""Activations rounded before they are multiplied, by the name of the rounding in a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from core.api.forms import AS_IS
from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.layout import rows_apart
from core_plugin_kernels_triton.ops.tiles import power_of_two, warps
from core_plugin_kernels_triton.products.kernels.kinds import E2M1, E4M3, MICROSCALED, OPENED
from core_plugin_kernels_triton.products.kernels.rounding import FLOAT4, FLOAT8, INT8, round_rows
from core_plugin_kernels_triton.products.runs import FIXABLE

_LARGEST_E4M3, _LARGEST_E2M1 = 448.0, 6.0
_LANE = 16
"""Numbers that a lane of the card holds."""


class Rounding(NamedTuple):
    """Rounding of activations: the numbers that they become.

    Attributes:
        kind: Of the numbers.
        run: Inputs that share a scale; 0: all of a token.
        power: Whether scales are powers of two.
        largest: Of what all tokens share a scale: the magnitude that the largest of them becomes.
    """

    kind: int
    run: int = 0
    power: bool = False
    largest: float = 0.0


ROUNDINGS: Mapping[str, Rounding] = {
    "int8:token": Rounding(INT8.value),
    "float8:token": Rounding(FLOAT8.value),
    "float8:tensor": Rounding(FLOAT8.value, largest=_LARGEST_E4M3),
    "float8:128": Rounding(FLOAT8.value, run=128),
    "float8:32": Rounding(FLOAT8.value, run=32, power=True),
    "e2m1:16": Rounding(FLOAT4.value, run=16, largest=_LARGEST_E4M3 * _LARGEST_E2M1),
    "e2m1:32": Rounding(FLOAT4.value, run=32, power=True),
}


class Given(NamedTuple):
    """Activations as a product takes them.

    Attributes:
        x: `(tokens, inputs)`: numbers, int8, or the bytes of e4m3; of e2m1 pairs, `(tokens, inputs / 2)`.
        scales: `(tokens, runs)` of runs of inputs, float32 or uint8.
        factors: What results are multiplied by: `(tokens,)` float32, or `()` for all of them.
    """

    x: Tensor
    scales: Tensor | None = None
    factors: Tensor | None = None

    def rows(self, start: int, end: int) -> Given:
        """Return some of the tokens."""
        scales = None if self.scales is None else self.scales[start:end]
        factors = self.factors
        if factors is not None and factors.ndim:
            factors = factors[start:end]
        return Given(self.x[start:end], scales, factors)


def prepared(x: Tensor, activations: str, how: int, whole: Tensor | None) -> Given:
    """Return activations for a product that multiplies in `how`.

    Args:
        whole: As `shared_scale` returns it.
    """
    if activations == AS_IS:
        return Given(x)
    if how == OPENED.value:
        return Given(rounded(x, activations, whole))
    codes, scales = coded(x, activations, whole, scaled=how == MICROSCALED.value)
    if how == MICROSCALED.value:
        return Given(codes, scales, whole)
    return Given(codes, scales) if scales.shape[1] > 1 else Given(codes, None, scales[:, 0])


def kind_of(activations: str) -> int:
    """Return the kind of activations that are codes, of those of weights."""
    return E2M1.value if activations.startswith("e2m1") else E4M3.value


def rounded(x: Tensor, activations: str, whole: Tensor | None) -> Tensor:
    """Return `x (tokens, inputs)` rounded, in its own dtype.

    Args:
        whole: As `shared_scale` returns it.
    """
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    how = ROUNDINGS[activations]
    launch_round(x, whole, out, None, how.kind, how.run, how.power)
    return out


def coded(x: Tensor, activations: str, whole: Tensor | None, *, scaled: bool = False) -> tuple[Tensor, Tensor]:
    """Return `x` as int8, the bytes of e4m3 or pairs of e2m1, and the scales `(tokens, runs)` of what follows from it.

    Args:
        scaled: Whether scales are the bytes of e8m0 or e4m3, else float32.
    """
    how = ROUNDINGS[activations]
    width = -(-x.shape[1] // 2) if how.kind == FLOAT4.value else x.shape[1]
    out = torch.empty((len(x), width), dtype=torch.int8 if how.kind == INT8.value else torch.uint8, device=x.device)
    count = -(-x.shape[1] // how.run) if how.run else 1
    scales = torch.empty((len(x), count), dtype=torch.uint8 if scaled else torch.float32, device=x.device)
    launch_round(x, whole, out, scales, how.kind, how.run, how.power)
    return out, scales


def shared_scale(x: Tensor, activations: str, fixed: Tensor | None) -> Tensor | None:
    """Return the scale that all tokens share, `()` float32, or None where each has its own.

    Args:
        fixed: The scale that the checkpoint fixes, `()` float32; 0 or None: it follows from `x`.
    """
    if activations not in FIXABLE:
        return None
    own = x.abs().amax().float() / ROUNDINGS[activations].largest
    own = torch.where(own > 0, own, 1.0)
    return own if fixed is None else torch.where(fixed > 0, fixed, own)


@launch("Tensor x, Tensor? whole, Tensor(a!) out, Tensor(b!)? scales, int kind, int run, bool power")
def launch_round(
    x: Tensor, whole: Tensor | None, out: Tensor, scales: Tensor | None, kind: int, run: int, power: bool
) -> None:
    """Write rounded values to `out`, or codes and their scales. `whole` is `()`, or `(tokens,)` contiguous."""
    x, stride = rows_apart(x)
    inputs = x.shape[1]
    block = power_of_two(max(inputs, run))
    round_rows[(len(x),)](
        *(x, whole, out, scales, inputs, stride, scales.shape[1] if scales is not None else 0),
        0 if whole is None or not whole.ndim else 1,
        KIND=kind,
        POWER=power,
        WHOLE=whole is not None,
        CODES=scales is not None,
        BYTES=scales is not None and scales.dtype == torch.uint8,
        RUN=run or block,
        BLOCK=block,
        num_warps=warps(block, _LANE),
    )
