"""Codes of four bits, two to a byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def unpacked(codes: Tensor) -> Tensor:
    """Return codes one by one, `(rows, 2 * bytes)` uint8, of `(rows, bytes)` uint8: the low bits of a byte first."""
    out = codes.new_empty(codes.shape[0], codes.shape[1], 2)
    torch.bitwise_and(codes, 15, out=out[..., 0])
    torch.bitwise_right_shift(codes, 4, out=out[..., 1])
    return out.flatten(1)
