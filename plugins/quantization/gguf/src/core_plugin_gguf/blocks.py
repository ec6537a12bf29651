"""Block formats of GGUF, decoded with torch.

A format stores a row as blocks of 32 or 256 values: small integers and the scales to multiply them with. Every
function here takes the bytes of `n` blocks, `(n, bytes per block)` uint8, and returns their values, `(n, values per
block)` float32. They compute in the order of ggml's reference, so results are equal to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType as Known
from gguf.quants import dequantize as library_dequantize
from torch import Tensor

from core_plugin_gguf.kinds import SIZES, NewerKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from core_plugin_gguf.kinds import Kind

CHUNK = 1 << 16
"""Values decoded at once: intermediate results stay in the processor's cache."""


def decode(raw: Tensor, kind: Kind, columns: int, dtype: torch.dtype) -> Tensor:
    """Return the values of `raw (rows, bytes per row)`, stored as `kind`: `(rows, columns)` in `dtype`.

    Works through a few rows at a time, so that no float32 copy of the whole tensor is made.
    """
    _, block_bytes = SIZES[kind]
    out = torch.empty(raw.shape[0], columns, dtype=dtype)
    step = max(1, CHUNK // columns)
    for start in range(0, raw.shape[0], step):
        blocks = raw[start : start + step].reshape(-1, block_bytes)
        values = DECODERS[kind](blocks) if kind in DECODERS else _by_library(blocks, kind)
        out[start : start + step] = values.view(-1, columns)
    return out


def _half(blocks: Tensor, at: int) -> Tensor:
    """Return the float16 at byte `at` of every block, `(n, 1)` float32."""
    return blocks[:, at : at + 2].view(torch.float16).float()


def _nibbles(packed: Tensor) -> Tensor:
    """Return the low halves of the bytes, then the high halves: `(..., k)` uint8 -> `(..., 2, k)` uint8."""
    return torch.stack((packed & 15, packed >> 4), dim=-2)


def _fifth_bits(words: Tensor) -> Tensor:
    """Spread 32 bits over 32 values, as 0 or 16: `(n, 4)` uint8 -> `(n, 32)` uint8."""
    shifts = torch.arange(8, dtype=torch.uint8)
    return ((words.unsqueeze(-1) >> shifts) & 1).flatten(1) << 4


def _f32(blocks: Tensor) -> Tensor:
    return blocks.view(torch.float32)


def _f16(blocks: Tensor) -> Tensor:
    return blocks.view(torch.float16).float()


def _bf16(blocks: Tensor) -> Tensor:
    return blocks.view(torch.bfloat16).float()


def _of_bytes(packed: Tensor, bits: int) -> Tensor:
    """Return codes of `bits` bits, the lowest bits of a byte first: `(n, k)` uint8 -> `(n, k * 8 / bits)` uint8."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
    return ((packed.unsqueeze(-1) >> shifts) & (1 << bits) - 1).flatten(1)


def _q1_0(blocks: Tensor) -> Tensor:
    return (_of_bytes(blocks[:, 2:], 1).float() * 2 - 1) * _half(blocks, 0)


def _q2_0(blocks: Tensor) -> Tensor:
    return (_of_bytes(blocks[:, 2:], 2).float() - 1) * _half(blocks, 0)


def _q4_0(blocks: Tensor) -> Tensor:
    return (_nibbles(blocks[:, 2:]).flatten(1).float() - 8) * _half(blocks, 0)


def _q4_1(blocks: Tensor) -> Tensor:
    return _nibbles(blocks[:, 4:]).flatten(1).float() * _half(blocks, 0) + _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    values = _nibbles(blocks[:, 6:]).flatten(1) | _fifth_bits(blocks[:, 2:6])
    return (values.float() - 16) * _half(blocks, 0)


def _q5_1(blocks: Tensor) -> Tensor:
    values = _nibbles(blocks[:, 8:]).flatten(1) | _fifth_bits(blocks[:, 4:8])
    return values.float() * _half(blocks, 0) + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return blocks[:, 2:].view(torch.int8).float() * _half(blocks, 0)


def _k_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return scale and minimum of the eight sub-blocks of Q4_K and Q5_K, each `(n, 8, 1)` float32.

    Bytes 4-15 hold sixteen 6-bit numbers: the first four scales and minima in the low six bits of bytes 4-7 and
    8-11, whose top two bits complete the nibbles of bytes 12-15 to the other four.
    """
    scale, minimum, rest = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat((scale & 63, (rest & 15) | ((scale >> 2) & 48)), dim=1)
    minima = torch.cat((minimum & 63, (rest >> 4) | ((minimum >> 2) & 48)), dim=1)
    return (
        (_half(blocks, 0) * scales.float()).unsqueeze(-1),
        (_half(blocks, 2) * minima.float()).unsqueeze(-1),
    )


def _q4_k(blocks: Tensor) -> Tensor:
    scales, minima = _k_scales(blocks)
    values = _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).flatten(1, 2)
    return (values.float() * scales - minima).flatten(1)


def _q5_k(blocks: Tensor) -> Tensor:
    scales, minima = _k_scales(blocks)
    # Bit b of byte i is the fifth bit of value i in sub-block b.
    shifts = torch.arange(8, dtype=torch.uint8).view(8, 1)
    high = ((blocks[:, 16:48].unsqueeze(1) >> shifts) & 1) << 4
    values = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).flatten(1, 2) | high
    return (values.float() * scales - minima).flatten(1)


def _q6_k(blocks: Tensor) -> Tensor:
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).view(-1, 2, 4, 32)
    # Two bits for each of the four runs of 32 values in either half.
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8).view(4, 1)
    high = ((blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3) << 4
    values = (low | high).reshape(-1, 16, 16).float() - 32
    scales = blocks[:, 192:208].view(torch.int8).float() * _half(blocks, 208)
    return (values * scales.unsqueeze(-1)).flatten(1)


E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the values of the codes."""


def _nvfp4(blocks: Tensor) -> Tensor:
    """A scale in e4m3 without a sign for each of four runs of 16 values; a byte has a value of either half of a run."""
    scales = (blocks[:, :4] & 127).view(torch.float8_e4m3fn).float().nan_to_num(480.0) / 2
    scales = torch.where(blocks[:, :4] == 127, 0.0, scales)  # a number that ggml never writes
    codes = _nibbles(blocks[:, 4:].reshape(-1, 4, 8)).flatten(2)
    values = torch.tensor(E2M1, dtype=torch.float32)[codes.long()]
    return (values * scales.unsqueeze(-1)).flatten(1)


def _by_library(blocks: Tensor, kind: Kind) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(library_dequantize(blocks.numpy(), Known(kind))))


DECODERS: Mapping[Kind, Callable[[Tensor], Tensor]] = {
    Known.F32: _f32,
    Known.F16: _f16,
    Known.BF16: _bf16,
    Known.Q4_0: _q4_0,
    Known.Q4_1: _q4_1,
    Known.Q5_0: _q5_0,
    Known.Q5_1: _q5_1,
    Known.Q8_0: _q8_0,
    Known.Q4_K: _q4_k,
    Known.Q5_K: _q5_k,
    Known.Q6_K: _q6_k,
    NewerKind.NVFP4: _nvfp4,
    NewerKind.Q1_0: _q1_0,
    NewerKind.Q2_0: _q2_0,
}
"""Formats with a torch form of their own; the gguf library decodes the others of `formats.DECODABLE`."""
