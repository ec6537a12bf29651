"""GGUF blocks in the layout of the native kernels (`csrc/cpu/gemm/blocks.h`).

A row is a run of blocks of 32 values (in super-blocks of eight for the K formats). Here each format is read as unsigned
codes and scales, which are then laid out 16 rows together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

PANEL = 16


@dataclass(frozen=True, slots=True)
class Codes:
    """The contents of `rows` rows.

    Attributes:
        codes: `(rows, blocks, 32)` uint8.
        shared: `(rows, groups, numbers)` float16, or bytes: what a block, or a super-block, says once.
        nested: `(rows, groups, 8, numbers)` uint8: what the eight blocks of a super-block say each, else None.
        last: `(rows,)` float32 by which results are multiplied, else None.
    """

    codes: Tensor
    shared: Tensor
    nested: Tensor | None = None
    last: Tensor | None = None


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """A format: bytes and values of its (super-)blocks, bits of a code, and how to read them."""

    stored: int
    values: int
    bits: int
    read: Callable[[Tensor], Codes]


def scales(shared: Tensor, nested: Tensor | None) -> Tensor:
    """Return the scales of whole panels, fields of `Codes`, as `(panels, groups, bytes)`: of a number 16 together."""
    rows, groups, _ = shared.shape
    panels = (rows // PANEL, PANEL, groups, -1)
    first = shared.reshape(panels).permute(0, 2, 3, 1).contiguous().flatten(2).view(torch.uint8)
    if nested is None:
        return first
    return torch.cat((first, nested.reshape(panels).permute(0, 2, 3, 1).flatten(2)), dim=2)


def _halves(blocks: Tensor, at: int, count: int = 1) -> Tensor:
    return blocks[..., at : at + 2 * count].contiguous().view(torch.float16)


def _nibbles(packed: Tensor) -> Tensor:
    """Return the low halves of the bytes, then the high halves."""
    return torch.cat((packed & 15, packed >> 4), dim=-1)


def _fifth(words: Tensor) -> Tensor:
    """Spread 32 bits over 32 values, as 0 or 16."""
    shifts = torch.arange(8, dtype=torch.uint8)
    return ((words.unsqueeze(-1) >> shifts) & 1).flatten(-2) << 4


def _q4(count: int) -> Callable[[Tensor], Codes]:
    return lambda blocks: Codes(_nibbles(blocks[..., 2 * count :]), _halves(blocks, 0, count))


def _q5(count: int) -> Callable[[Tensor], Codes]:
    def read(blocks: Tensor) -> Codes:
        start = 2 * count
        codes = _nibbles(blocks[..., start + 4 :]) | _fifth(blocks[..., start : start + 4])
        return Codes(codes, _halves(blocks, 0, count))

    return read


def _q8_0(blocks: Tensor) -> Codes:
    return Codes(blocks[..., 2:] ^ 128, _halves(blocks, 0))


def _k_nested(blocks: Tensor) -> Tensor:
    """Return the 6-bit scales and minima of Q4_K and Q5_K: `(rows, groups, 8, 2)`."""
    scale, minimum, rest = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    scales = torch.cat((scale & 63, (rest & 15) | ((scale >> 2) & 48)), dim=-1)
    minima = torch.cat((minimum & 63, (rest >> 4) | ((minimum >> 2) & 48)), dim=-1)
    return torch.stack((scales, minima), dim=-1)


def _k_codes(packed: Tensor) -> Tensor:
    """Return the low four bits of a super-block: 32 bytes hold two blocks. `(rows, groups, 8, 32)`."""
    return _nibbles(packed.reshape(*packed.shape[:2], 4, 32)).view(*packed.shape[:2], 8, 32)


def _q3_k(blocks: Tensor) -> Codes:
    leading = blocks.shape[:2]
    # Either half of a super-block: 32 bytes of four blocks' low bits. The third bits of all eight share 32 bytes.
    shifts = torch.arange(8, dtype=torch.uint8).view(8, 1)
    low = (blocks[..., 32:96].reshape(*leading, 2, 1, 32) >> 2 * shifts[:4]) & 3
    third = ((blocks[..., :32].unsqueeze(-2) >> shifts) & 1) << 2
    # Of the sixteen scales, 0 to 63 and 32 more than they are, eight bytes have the lower bits, four the upper two.
    scales = _nibbles(blocks[..., 96:104])
    high = ((blocks[..., 104:108].unsqueeze(-2) >> 2 * shifts[:4]) & 3).flatten(-2)
    codes = low.flatten(-3, -2) | third
    return Codes(codes.flatten(1, 2), _halves(blocks, 108), (scales | high << 4) - 32)


def _q4_k(blocks: Tensor) -> Codes:
    return Codes(_k_codes(blocks[..., 16:]).flatten(1, 2), _halves(blocks, 0, 2), _k_nested(blocks))


def _q5_k(blocks: Tensor) -> Codes:
    shifts = torch.arange(8, dtype=torch.uint8).view(8, 1)
    fifth = ((blocks[..., 16:48].unsqueeze(-2) >> shifts) & 1) << 4
    codes = _k_codes(blocks[..., 48:]) | fifth
    return Codes(codes.flatten(1, 2), _halves(blocks, 0, 2), _k_nested(blocks))


def _q6_k(blocks: Tensor) -> Codes:
    # Either half of a super-block: 64 bytes of four blocks' low bits, 32 bytes of their high bits.
    leading = blocks.shape[:2]
    low = _nibbles(blocks[..., :128].reshape(*leading, 2, 64)).view(*leading, 2, 4, 32)
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8).view(4, 1)
    high = ((blocks[..., 128:192].reshape(*leading, 2, 1, 32) >> shifts) & 3) << 4
    return Codes((low | high).flatten(-3, -2).flatten(1, 2), _halves(blocks, 208), blocks[..., 192:208])


def _iq4_xs(blocks: Tensor) -> Codes:
    # Of the eight scales, 0 to 63 and 32 more than they are, the upper two bits lie together, then the lower four.
    high = _bits(blocks[..., 2:4], 2)
    scales = (_bits(blocks[..., 4:8], 4) | high << 4) - 32  # a byte, which the kernels take for a signed one
    codes = _nibbles(blocks[..., 8:].reshape(*blocks.shape[:2], 8, 16))
    return Codes(codes.flatten(1, 2), _halves(blocks, 0), scales)


def _mxfp4(blocks: Tensor) -> Codes:
    # Kernels multiply with twice what codes stand for: half the scale, whose exponent is a byte.
    return Codes(_nibbles(blocks[..., 1:]), blocks[..., :1].clamp(min=1) - 1)


def _nvfp4(blocks: Tensor) -> Codes:
    scales, rows = blocks[..., :4] & 127, len(blocks)
    scales = torch.where(scales == 127, 0, scales)  # what is no number in e4m3 is zero here
    codes = _nibbles(blocks[..., 4:].reshape(*blocks.shape[:2], 4, 8))
    # Kernels take e4m3 256 times too small, and codes twice.
    last = torch.full((rows,), 128.0)
    return Codes(codes.reshape(rows, -1, 32), scales.reshape(rows, -1, 2), last=last)


def _bits(packed: Tensor, width: int) -> Tensor:
    """Spread bytes over the numbers of `width` bits that they hold, the lowest first."""
    shifts = torch.arange(0, 8, width, dtype=torch.uint8)
    return ((packed.unsqueeze(-1) >> shifts) & (2**width - 1)).flatten(-2)


def _few_bits(width: int) -> Callable[[Tensor], Codes]:
    return lambda blocks: Codes(_bits(blocks[..., 2:], width).view(len(blocks), -1, 32), _halves(blocks, 0))


FORMATS = {
    "Q4_0": BlockFormat(18, 32, 4, _q4(1)),
    "Q4_1": BlockFormat(20, 32, 4, _q4(2)),
    "Q5_0": BlockFormat(22, 32, 5, _q5(1)),
    "Q5_1": BlockFormat(24, 32, 5, _q5(2)),
    "Q8_0": BlockFormat(34, 32, 8, _q8_0),
    "Q3_K": BlockFormat(110, 256, 3, _q3_k),
    "Q4_K": BlockFormat(144, 256, 4, _q4_k),
    "Q5_K": BlockFormat(176, 256, 5, _q5_k),
    "Q6_K": BlockFormat(210, 256, 6, _q6_k),
    "MXFP4": BlockFormat(17, 32, 4, _mxfp4),
    "NVFP4": BlockFormat(36, 64, 4, _nvfp4),
    "Q1_0": BlockFormat(18, 128, 1, _few_bits(1)),
    "Q2_0": BlockFormat(18, 64, 2, _few_bits(2)),
    "IQ4_NL": BlockFormat(18, 32, 4, _q4(1)),
    "IQ4_XS": BlockFormat(136, 256, 4, _iq4_xs),
}
"""Formats of files that the kernels multiply with, by GGUF's name."""

IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""What codes of IQ4_NL and IQ4_XS stand for."""

BITS = {name: layout.bits for name, layout in FORMATS.items()} | {"Q4_64": 4, "Q4_128": 4}
"""Bits of a code in every block format of the kernels."""
