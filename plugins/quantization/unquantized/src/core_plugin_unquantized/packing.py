"""Codes of a few bits, taken out of bytes and words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


CHUNK = 1 << 14
"""Words unpacked at once: intermediate results take eight bytes for each code."""


def codes_of_bytes(pairs: Tensor) -> Tensor:
    """Return the codes of `pairs (rows, columns / 2)` uint8, 4 bits each: `(rows, columns)` uint8, low bits first."""
    codes = pairs.new_empty(pairs.shape[0], pairs.shape[1], 2)
    torch.bitwise_and(pairs, 15, out=codes[..., 0])
    torch.bitwise_right_shift(pairs, 4, out=codes[..., 1])
    return codes.flatten(1)


def codes_of_words(words: Tensor, bits: int) -> Tensor:
    """Return the codes of `words (rows, columns * bits / 32)` int32: `(rows, columns)` uint8.

    Bits follow each other through the words, lowest first, so that codes of three bits may begin in one and end in the
    next.
    """
    codes = torch.empty(words.shape[0], words.shape[1] * 32 // bits, dtype=torch.uint8, device=words.device)
    split = _whole_codes if 32 % bits == 0 else _broken_codes
    step = max(1, CHUNK // words.shape[1])
    for some, out in zip(words.split(step), codes.split(step), strict=True):
        out.copy_(split(some, bits))
    return codes


def _whole_codes(words: Tensor, bits: int) -> Tensor:
    shifts = torch.arange(0, 32, bits, device=words.device, dtype=torch.int32)
    return ((words.unsqueeze(-1) >> shifts) & (1 << bits) - 1).flatten(1)


def _broken_codes(words: Tensor, bits: int) -> Tensor:
    """As `_whole_codes`, of codes that do not fill words: 32 of them are `bits` words."""
    start = torch.arange(0, 32 * bits, bits, device=words.device)
    run = words.reshape(words.shape[0], -1, bits).long() & 0xFFFFFFFF
    both = run[..., start // 32] | run[..., (start // 32 + 1).clamp(max=bits - 1)] << 32
    return ((both >> start % 32) & (1 << bits) - 1).flatten(1)
