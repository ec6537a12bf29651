"""Weights of floats of 8 and 4 bits in the layout of the native kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from core_plugin_cpu.native import blocks
from core_plugin_cpu.native.packed import PANEL, Format, PackedWeight, join, pack_codes, panels, whole_panels

FLOAT8 = {
    torch.float8_e4m3fn: {0: Format.E4M3, 128: Format.E4M3_128, 32: Format.E4M3_32},
    torch.float8_e5m2: {0: Format.E5M2, 128: Format.E5M2_128, 32: Format.E5M2_32},
}
"""Formats of codes of one byte, by how many inputs share a scale; 0: all of them."""

WIDENED = {torch.float8_e4m3fn: 2.0**-8, torch.float8_e5m2: 2.0**-16}
"""Value that kernels make of the code for 1, by dtype: scales make up for it."""

TABLE_GROUP = 64
"""Inputs that share a scale in `NF4` and `FP4`."""


def pack_float8(codes: Tensor, scales: Tensor, size: int = 0, dtype: torch.dtype = torch.float8_e4m3fn) -> PackedWeight:
    """Pack a weight of float8 codes.

    Args:
        codes: `(n, k)` uint8.
        scales: `(n, groups)` float32; groups of `size` inputs, the last of which may have fewer.
        size: Inputs that share a scale, a multiple of 32; 0: all of them.
        dtype: What the codes are, `float8_e4m3fn` or `float8_e5m2`.
    """
    n, k = codes.shape
    kind = float8_format(size, dtype)
    unit = next(unit for unit, other in FLOAT8[dtype].items() if other == kind)
    if size != unit:
        scales = scales.repeat_interleave(size // unit, dim=1)
    # The last group of the form may be one of several of the format's.
    shared = (scales[:, : -(-k // unit)] if unit else scales) / WIDENED[dtype]
    grid = whole_panels(shared).view(-1, PANEL, shared.shape[1]).transpose(1, 2).contiguous()
    lines = panels(codes, 4, 32)[..., [0, 2, 1, 3]]
    return join(kind, n, k, lines.contiguous(), grid.view(torch.uint8))


def pack_float4(codes: Tensor, scales: Tensor, whole: Tensor | None = None) -> PackedWeight:
    """Pack a weight of four-bit floats (e2m1).

    Args:
        codes: `(n, k)` uint8, 0 to 15.
        scales: Bytes, uint8: `(n, k / 32)` of e8m0, or with `whole` `(n, k / 16)` of e4m3.
        whole: `()` or `(n,)` float32, by which these are multiplied.
    """
    n, k = codes.shape
    units = codes.view(n, k // 32, 32)
    # Kernels multiply with twice what codes stand for, and take e4m3 256 times too small.
    if whole is None:
        half = scales.clamp(min=1) - 1
        return pack_codes(blocks.Codes(units, half.unsqueeze(-1)), Format.MXFP4, n, k)
    last = (128.0 * whole.float()).expand(n).contiguous()
    if bool((scales > 127).any()):  # kernels know no signs of scales: codes have one
        units = units ^ ((scales & 128) >> 4).repeat_interleave(16, dim=1).view(units.shape)
    return pack_codes(blocks.Codes(units, (scales & 127).view(n, k // 32, 2), last=last), Format.NVFP4, n, k)


def pack_table(kind: Format, codes: Tensor, scales: Tensor, size: int) -> PackedWeight:
    """Pack a weight of codes that stand for numbers of a table.

    Args:
        kind: `NF4` or `FP4`.
        codes: `(n, k)` uint8, 0 to 15.
        scales: `(n, groups)` float32; groups of `size` inputs, the last of which may have fewer.
        size: Inputs that share a scale, a multiple of `TABLE_GROUP`.
    """
    n, k = codes.shape
    shared = scales.repeat_interleave(size // TABLE_GROUP, dim=1)[:, : -(-k // TABLE_GROUP)]
    grid = whole_panels(shared).view(-1, PANEL, shared.shape[1]).transpose(1, 2).contiguous()
    # Halves of bytes are inputs 0, 2, 4, 6, 1, 3, 5 and 7.
    eight = torch.nn.functional.pad(codes, (0, -k % 32)).view(n, -1, 8)
    words = eight[..., [0, 4, 1, 5]] | eight[..., [2, 6, 3, 7]] << 4
    return join(kind, n, k, panels(words.flatten(1), 4, 4), grid.view(torch.uint8))


def float8_format(size: int, dtype: torch.dtype = torch.float8_e4m3fn) -> Format:
    """Return the format of float8 codes for groups of so many inputs, a multiple of 32; 0: all of them."""
    return FLOAT8[dtype][0 if size == 0 else 128 if size % 128 == 0 else 32]
