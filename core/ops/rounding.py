"""Activations rounded before they are multiplied, by the name of the rounding in a form: the definition of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from core.api.forms import AS_IS

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_E4M3 = 448.0
LARGEST_E2M1 = 6.0


def rounded(x: Tensor, activations: str, input_scale: Tensor | None = None) -> Tensor:
    """Return activations `(tokens, inputs)` rounded as a form says, in their own dtype.

    Args:
        input_scale: The scale that a checkpoint fixes, `()`; None or 0: it is taken from `x`.

    Raises:
        ValueError: No such rounding is known.
    """
    if activations == AS_IS:
        return x
    if activations not in ROUNDINGS:
        raise ValueError(f"core knows no activations '{activations}'; it knows {', '.join(sorted(ROUNDINGS))}")
    fixed = x.new_zeros((), dtype=torch.float32) if input_scale is None else input_scale
    return ROUNDINGS[activations](x.float(), fixed).to(x.dtype)


def to_e2m1(x: Tensor) -> Tensor:
    """Return the nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, or of their negatives; ties go to an even mantissa."""
    size = x.abs()
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    nearest = (torch.round(size / step) * step).clamp(max=LARGEST_E2M1)
    return torch.where(x < 0, -nearest, nearest)


def _int8_token(x: Tensor, fixed: Tensor) -> Tensor:
    """255 steps between the largest magnitudes of a token."""
    scale = _positive(x.abs().amax(dim=-1, keepdim=True) / 127)
    return torch.round(x / scale) * scale


def _float8_token(x: Tensor, fixed: Tensor) -> Tensor:
    return _to_e4m3(x, _positive(x.abs().amax(dim=-1, keepdim=True) / LARGEST_E4M3))


def _float8_tensor(x: Tensor, fixed: Tensor) -> Tensor:
    """One scale for all tokens; values beyond what a fixed one leaves room for become the largest."""
    return _to_e4m3(x, torch.where(fixed > 0, fixed, _positive(_largest(x) / LARGEST_E4M3)))


def _float8_128(x: Tensor, fixed: Tensor) -> Tensor:
    return _by_runs(x, 128, lambda runs: _float8_token(runs, fixed))


def _e2m1_16(x: Tensor, fixed: Tensor) -> Tensor:
    """A scale in e4m3 for each run of 16 inputs, times one for all tokens."""
    whole = torch.where(fixed > 0, fixed, _positive(_largest(x) / (LARGEST_E4M3 * LARGEST_E2M1)))

    def run(runs: Tensor) -> Tensor:
        scale = runs.abs().amax(dim=-1, keepdim=True) / LARGEST_E2M1 / whole
        scale = _positive(_to_e4m3(scale, torch.ones_like(scale))) * whole
        return to_e2m1(runs / scale) * scale

    return _by_runs(x, 16, run)


def _e2m1_32(x: Tensor, fixed: Tensor) -> Tensor:
    """A power of two for each run of 32 inputs: MXFP4."""
    return _by_runs(x, 32, lambda runs: _scaled(runs, _power(runs, 2), to_e2m1))


def _float8_32(x: Tensor, fixed: Tensor) -> Tensor:
    """A power of two for each run of 32 inputs: MXFP8."""
    return _by_runs(x, 32, lambda runs: _to_e4m3(runs, _power(runs, 8)))


def _power(runs: Tensor, largest: int) -> Tensor:
    """Return the scale of each run by which the exponent of its largest magnitude becomes `largest`, as OCP says."""
    exponents = torch.frexp(runs.abs().amax(dim=-1, keepdim=True)).exponent - 1 - largest
    powers = torch.ldexp(torch.ones_like(exponents, dtype=torch.float32), exponents.clamp(-127, 127))
    return torch.where(runs.abs().amax(dim=-1, keepdim=True) > 0, powers, 1.0)


def _scaled(x: Tensor, scale: Tensor, nearest: Callable[[Tensor], Tensor]) -> Tensor:
    return nearest(x / scale) * scale


def _to_e4m3(x: Tensor, scale: Tensor) -> Tensor:
    codes = (x / scale).clamp(-LARGEST_E4M3, LARGEST_E4M3).to(torch.float8_e4m3fn)
    return codes.float() * scale


def _largest(x: Tensor) -> Tensor:
    return x.abs().amax() if x.numel() else x.new_zeros(())


def _positive(scale: Tensor) -> Tensor:
    """Return scales to divide by: 1 where all values are 0."""
    return torch.where(scale > 0, scale, 1.0)


def _by_runs(x: Tensor, size: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function to runs of `size` inputs, `(tokens, runs, size)`; the last one is filled up with zeros."""
    inputs = x.shape[-1]
    padded = torch.nn.functional.pad(x, (0, -inputs % size))
    return function(padded.view(len(x), -(-inputs // size), size)).flatten(1)[:, :inputs]


ROUNDINGS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "int8:token": _int8_token,
    "float8:token": _float8_token,
    "float8:tensor": _float8_tensor,
    "float8:128": _float8_128,
    "float8:32": _float8_32,
    "e2m1:16": _e2m1_16,
    "e2m1:32": _e2m1_32,
}
"""Name in `WeightForm.activations` -> `(x, fixed scale or 0) -> x`, in float32."""

FIXABLE = frozenset({"float8:tensor", "e2m1:16"})
"""Those whose scale a checkpoint may fix."""
