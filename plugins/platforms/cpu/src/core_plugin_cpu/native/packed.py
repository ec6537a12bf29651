"""Weights in the layout of the native kernels (`csrc/cpu/gemm/gemm.h`), made once, at load."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache

import torch
from torch import Tensor

from core_plugin_cpu.native import blocks, rearrange
from core_plugin_cpu.native.library import library

PANEL = blocks.PANEL
"""Output channels that are stored together."""


class Format(IntEnum):
    """How weights are stored and which activations meet them; the numbers are part of the ABI."""

    F32 = 0
    BF16 = 1
    W8A8 = 2
    W8A16 = 3
    Q4_0 = 4
    Q4_1 = 5
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q4_K = 9
    Q5_K = 10
    Q6_K = 11
    Q4_64 = 12
    Q4_128 = 13
    MXFP4 = 14
    NVFP4 = 15
    Q1_0 = 16
    Q2_0 = 17
    IQ4_NL = 18
    IQ4_XS = 19
    Q3_K = 20
    E4M3 = 21
    E4M3_128 = 22
    E4M3_32 = 23
    NF4 = 24
    FP4 = 25
    E5M2 = 26
    E5M2_128 = 27
    E5M2_32 = 28


SOME = 128 * PANEL
"""Rows that are rearranged at a time: what is in between takes several times their memory."""

MIDDLE = 8
"""Code that stands for zero in `Q4_0`."""

_GROUP = {Format.Q4_1: 32, Format.Q4_64: 64, Format.Q4_128: 128}


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight `(n, k)` as the kernels read it.

    Attributes:
        data: Panels of 16 channels one after another, `(bytes,)` uint8.
        order: `(k,)` int32 if the inputs were rearranged: packed input `i` is input `order[i]` of the activations.
        asked: Flags of `native.asked`: what is asked of products. Only block formats have a choice.
    """

    format: Format
    n: int
    k: int
    data: Tensor
    order: Tensor | None = None
    asked: int = 0

    @property
    def code(self) -> int:
        """The field `format` of the kernels' arguments."""
        return self.format | self.asked

    @property
    def nbytes(self) -> int:
        """Bytes of the packed weight."""
        return self.data.nbytes


@cache
def panel_bytes(kind: Format, k: int) -> int:
    """Return the bytes of 16 channels with `k` inputs."""
    function = library().core_cpu_gemm_panel
    function.argtypes, function.restype = [ctypes.c_int64, ctypes.c_int64], ctypes.c_int64
    return int(function(kind, k))


def packed_bytes(kind: Format, n: int, k: int) -> int:
    """Return the bytes of a packed weight `(n, k)`."""
    return _up(n, PANEL) // PANEL * panel_bytes(kind, k)


def pack(weight: Tensor, out: Tensor | None = None) -> PackedWeight:
    """Pack a float32 or bfloat16 weight `(n, k)` into `out (bytes,)` uint8, by default new memory.

    Raises:
        ValueError: The weight has another dtype.
    """
    if weight.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"cannot pack a weight of {weight.dtype}: float32 or bfloat16 expected")
    kind, inputs = (Format.F32, 1) if weight.dtype == torch.float32 else (Format.BF16, 2)
    n, k = weight.shape
    size = panel_bytes(kind, k)
    data = torch.empty(packed_bytes(kind, n, k), dtype=torch.uint8) if out is None else out
    _write(weight, inputs, data.view(-1, size // rearrange.LINE, PANEL, 4))
    return PackedWeight(kind, n, k, data)


def pack_int8(weight: Tensor, scales: Tensor, *, activations: int = 8) -> PackedWeight:
    """Pack int8 weights `(n, k)` with one scale per output channel.

    Args:
        weight: `(n, k)` int8.
        scales: `(n,)` or `(n, 1)`, any float dtype.
        activations: 8 to quantize the activations of every row to int8, 16 to leave them floating point.
    """
    n = weight.shape[0]
    kind = Format.W8A8 if activations == 8 else Format.W8A16
    padded = torch.zeros(_up(n, PANEL), dtype=torch.float32)
    padded[:n] = scales.reshape(-1)
    sums = torch.zeros(_up(n, PANEL), dtype=torch.int32)
    sums[:n] = weight.sum(dim=1, dtype=torch.int32)
    both = torch.cat((padded.view(-1, PANEL).view(torch.uint8), sums.view(-1, PANEL).view(torch.uint8)), dim=1)
    return join(kind, n, weight.shape[1], panels(weight, 4, 64), both)


def quantize_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return `weight (n, k)` rounded to int8, and the scale of each row: its largest magnitude over 127, or 1."""
    scales = weight.float().abs().amax(dim=1, keepdim=True) / 127
    scales = torch.where(scales > 0, scales, 1.0)
    return torch.round(weight / scales).to(torch.int8), scales


def inputs_of(kind: Format, row_bytes: int) -> int:
    """Return how many values the GGUF blocks of a row hold."""
    layout = blocks.FORMATS[kind.name]
    return row_bytes // layout.stored * layout.values


def pack_rows(kind: Format, n: int, k: int, out: Tensor, pack_some: Callable[[slice], PackedWeight]) -> None:
    """Pack a weight `(n, k)` into `out (bytes,)`, some rows at a time: what is in between takes more memory."""
    for first in range(0, n, SOME):
        data = pack_some(slice(first, first + SOME)).data
        start = first // PANEL * panel_bytes(kind, k)
        out[start : start + data.nbytes] = data


def pack_blocks(raw: Tensor, kind: Format, k: int, out: Tensor | None = None) -> PackedWeight:
    """Pack a weight stored in GGUF blocks, without decoding it.

    Args:
        raw: `(n, bytes of a row)` uint8, as in the file.
        k: Values of a row.
        out: Where to, `(bytes,)` uint8; by default new memory.

    Raises:
        ValueError: `kind` is no block format, or the rows do not hold `k` values.
    """
    layout = blocks.FORMATS.get(kind.name)
    if layout is None or k % layout.values or raw.shape[1] * layout.values != k * layout.stored:
        raise ValueError(f"rows of {raw.shape[1]} bytes do not hold {k} values of {kind.name}")
    n = raw.shape[0]
    data = torch.empty(packed_bytes(kind, n, k), dtype=torch.uint8) if out is None else out
    if rearrange.file_blocks(raw, k, kind, panel_bytes(kind, k), data):
        return PackedWeight(kind, n, k, data)

    def some(rows: slice) -> PackedWeight:
        stored = raw[rows]
        return pack_codes(layout.read(stored.reshape(stored.shape[0], -1, layout.stored)), kind, stored.shape[0], k)

    pack_rows(kind, n, k, data, some)
    return PackedWeight(kind, n, k, data)


def pack_groups(codes: Tensor, scales: Tensor, minima: Tensor | None, *, order: Tensor | None = None) -> PackedWeight:
    """Pack a weight of 4-bit codes, `code * scale + minimum`.

    Args:
        codes: `(n, k)` uint8, 0 to 15.
        scales, minima: `(n, groups)`; groups of 32 inputs, or of a multiple of it. Without minima they are `-MIDDLE *
            scale`, and need not be stored.
        order: As in `PackedWeight`; the columns of `codes` are in the packed order already.

    Raises:
        ValueError: The groups are no whole blocks of 32 inputs.
    """
    (n, k), groups = codes.shape, scales.shape[1]
    size = k // groups
    if size * groups != k or size % 32:
        raise ValueError(f"{groups} groups do not divide {k} inputs into whole blocks of 32")
    kind, numbers = (Format.Q4_0, (scales,)) if minima is None else (group_format(size), (scales, minima))
    shared = torch.stack(numbers, dim=-1).half().repeat_interleave(size // _GROUP.get(kind, 32), dim=1)
    packed = pack_codes(blocks.Codes(codes.view(n, k // 32, 32), shared), kind, n, k)
    return PackedWeight(kind, n, k, packed.data, None if order is None else order.to(torch.int32))


def group_format(size: int) -> Format:
    """Return the format for groups of so many inputs, a multiple of 32: the one with the fewest scales."""
    return next(kind for kind in (Format.Q4_128, Format.Q4_64, Format.Q4_1) if size % _GROUP[kind] == 0)


def pack_codes(content: blocks.Codes, kind: Format, n: int, k: int) -> PackedWeight:
    """Pack the codes and scales of `n` rows of `k` inputs."""
    nested = None if content.nested is None else whole_panels(content.nested)
    scales = blocks.scales(whole_panels(content.shared), nested).flatten(1)
    if content.last is not None:
        last = whole_panels(content.last).view(-1, PANEL)
        scales = torch.cat((scales, last.view(torch.uint8)), dim=1)
    return join(kind, n, k, rearrange.codes(content.codes, blocks.BITS[kind.name]), scales)


def whole_panels(rows: Tensor) -> Tensor:
    """Return `rows` with as many rows of zeros behind them as complete a panel."""
    missing = -rows.shape[0] % PANEL
    return torch.cat((rows, rows.new_zeros(missing, *rows.shape[1:]))) if missing else rows


def join(kind: Format, n: int, k: int, lines: Tensor, scales: Tensor | None = None) -> PackedWeight:
    """Return panels: lines, then scales, both `(panels, ...)`."""
    lines = lines.flatten(1).view(torch.uint8)
    size = panel_bytes(kind, k)
    if scales is None and lines.shape[1] == size:
        return PackedWeight(kind, n, k, lines.view(-1))
    data = torch.zeros(lines.shape[0], size, dtype=torch.uint8)
    data[:, : lines.shape[1]] = lines
    if scales is not None:
        scales = scales.flatten(1)
        data[:, lines.shape[1] : lines.shape[1] + scales.shape[1]] = scales
    return PackedWeight(kind, n, k, data.view(-1))


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def panels(weight: Tensor, inputs: int, multiple: int) -> Tensor:
    """Return `weight (n, k)` as `(panels, k / inputs, 16, inputs)`, padded with zeros to `multiple` inputs."""
    n, k = weight.shape
    packed = torch.empty(_up(n, PANEL) // PANEL, _up(k, multiple) // inputs, PANEL, inputs, dtype=weight.dtype)
    _write(weight, inputs, packed.view(torch.uint8))
    return packed


def _write(weight: Tensor, inputs: int, lines: Tensor) -> None:
    """Write `weight (n, k)` to `lines (panels, lines, 16, 4)` uint8; missing inputs and rows are zeros."""
    missing = -weight.shape[1] % inputs
    words = torch.nn.functional.pad(weight, (0, missing)) if missing else rearrange.dense(weight)
    lines[:, words.shape[1] // inputs :] = 0
    rearrange.words(words.view(torch.uint8), lines)
