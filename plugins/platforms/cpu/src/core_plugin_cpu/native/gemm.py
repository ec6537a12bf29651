"""Matrix products with packed weights: `y (m, n) = x (m, k) . W (n, k)^T + bias`, optionally with each row's argmax.

`pack_*` bring a weight into the layout of `csrc/cpu/gemm/gemm.h`, once, at load; `linear` and `argmax` apply it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from core_plugin_cpu.native import blocks
from core_plugin_cpu.native.entry import BFLOAT16, FLOAT32, Entry
from core_plugin_cpu.native.library import library

PANEL = blocks.PANEL
"""Output channels that are stored together."""

CODES = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16}
"""Dtypes of activations and results."""

GEMM = Entry(
    "gemm",
    pointers="x w scales sums bias y best workspace",
    sizes="m n k x_stride y_stride x_dtype y_dtype format threads",
    slots={"m": "tokens"},
)


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


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight `(n, k)` as the kernels read it.

    Attributes:
        data: Panels of 16 channels, padded.
        scales: Float32 per channel (W8*) or the scales of block formats; else None.
        sums: Int32 sum of every channel's weights (W8*); else None.
    """

    format: Format
    n: int
    k: int
    data: Tensor
    scales: Tensor | None = None
    sums: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in (self.data, self.scales, self.sums) if part is not None)


def pack(weight: Tensor) -> PackedWeight:
    """Pack a float32 or bfloat16 weight `(n, k)`. Raises `ValueError` for another dtype."""
    if weight.dtype not in CODES:
        raise ValueError(f"cannot pack a weight of {weight.dtype}: float32 or bfloat16 expected")
    kind, inputs = (Format.F32, 1) if weight.dtype == torch.float32 else (Format.BF16, 2)
    return PackedWeight(kind, weight.shape[0], weight.shape[1], _panels(weight, inputs, 32))


def pack_int8(weight: Tensor, scales: Tensor, *, activations: int = 8) -> PackedWeight:
    """Pack int8 weights `(n, k)` with one scale per output channel.

    Args:
        weight: `(n, k)` int8.
        scales: `(n,)` or `(n, 1)`, any float dtype.
        activations: 8 to quantize the activations of every row to int8, 16 to leave them floating point.
    """
    n, k = weight.shape
    kind = Format.W8A8 if activations == 8 else Format.W8A16
    padded = torch.zeros(_up(n, PANEL), dtype=torch.float32)
    padded[:n] = scales.reshape(-1)
    sums = torch.zeros(_up(n, PANEL), dtype=torch.int32)
    sums[:n] = weight.sum(dim=1, dtype=torch.int32)
    return PackedWeight(kind, n, k, _panels(weight, 4, 64), padded, sums)


def pack_blocks(raw: Tensor, kind: Format, k: int) -> PackedWeight:
    """Pack a weight stored in GGUF blocks, without decoding it.

    Args:
        raw: `(n, bytes of a row)` uint8, as in the file.
        k: Values of a row. The native kernels round activations to int8, 32 of them to a scale, as ggml does.

    Raises:
        ValueError: `kind` is no block format, or the rows do not hold `k` values.
    """
    layout = blocks.FORMATS.get(kind.name)
    if layout is None or k % layout.values or raw.shape[1] * layout.values != k * layout.stored:
        raise ValueError(f"rows of {raw.shape[1]} bytes do not hold {k} values of {kind.name}")
    data, scales = blocks.pack_blocks(raw, layout)
    return PackedWeight(kind, raw.shape[0], k, data, scales)


def linear(x: Tensor, weight: PackedWeight, bias: Tensor | None = None, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return `x (..., k) . W^T + bias`: `(..., n)` in `dtype`, by default that of `x` (float32 or bfloat16).

    Args:
        bias: `(n,)` float32.
    """
    rows = x.reshape(-1, weight.k)
    y = torch.empty(rows.shape[0], weight.n, dtype=dtype or x.dtype)
    apply(rows, weight, bias, y)
    return y.view(*x.shape[:-1], weight.n)


def argmax(x: Tensor, weight: PackedWeight, bias: Tensor | None = None, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return the channel of each row's largest result, the lowest of equals: `(...,)` int64. No result is stored.

    Args:
        dtype: Results are rounded to this before they are compared; by default the dtype of `x`.
    """
    rows = x.reshape(-1, weight.k)
    best = torch.empty(rows.shape[0], dtype=torch.int64)
    apply(rows, weight, bias, None, best=best, dtype=dtype)
    return best.view(x.shape[:-1])


def apply(
    x: Tensor,
    weight: PackedWeight,
    bias: Tensor | None,
    y: Tensor | None,
    *,
    best: Tensor | None = None,
    dtype: torch.dtype | None = None,
    workspace: Tensor | None = None,
) -> None:
    """Compute into `y (m, n)`, `best (m,)` int64, or both. Rows of `x (m, k)` and `y` may be strided.

    Raises:
        ValueError: A dtype is neither float32 nor bfloat16, or a shape does not fit.
    """
    if x.stride(-1) != 1 and x.numel() > 0:
        x = x.contiguous()
    _check(x, weight, bias, y)
    x_code, y_code = CODES[x.dtype], CODES[(x.dtype if dtype is None else dtype) if y is None else y.dtype]
    strides = (x.stride(0), 0 if y is None else y.stride(0))
    sizes = (x.shape[0], weight.n, weight.k, *strides, x_code, y_code, weight.format, torch.get_num_threads())
    if workspace is None:
        workspace = torch.empty(workspace_bytes(sizes), dtype=torch.uint8)
    parts = (x, weight.data, weight.scales, weight.sums, bias, y, best, workspace)
    GEMM(*(_address(part) for part in parts), *sizes)


def workspace_bytes(sizes: tuple[int, ...]) -> int:
    """Return the bytes of workspace of a call with these `sizes` (fields of `GEMM`) or fewer rows."""
    function = library().core_cpu_gemm_workspace
    function.restype = ctypes.c_int64
    return int(function(GEMM.pack(*(0,) * 8, *sizes)))


def _check(x: Tensor, weight: PackedWeight, bias: Tensor | None, y: Tensor | None) -> None:
    for tensor in (x, y):
        if tensor is not None and tensor.dtype not in CODES:
            raise ValueError(f"packed products take float32 and bfloat16, not {tensor.dtype}")
    if x.dim() != 2 or x.shape[1] != weight.k:
        raise ValueError(f"x of shape {tuple(x.shape)} does not fit a packed weight of {weight.k} inputs")
    if y is not None and (y.shape != (x.shape[0], weight.n) or y.stride(1) != 1):
        raise ValueError(f"y of shape {tuple(y.shape)} is no place for ({x.shape[0]}, {weight.n})")
    if bias is not None and (bias.dtype != torch.float32 or bias.shape != (weight.n,) or not bias.is_contiguous()):
        raise ValueError(f"bias must be ({weight.n},) float32 and contiguous")


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _panels(weight: Tensor, inputs: int, multiple: int) -> Tensor:
    """Return `weight (n, k)` as `(panels, k / inputs, 16, inputs)`, padded with zeros to `multiple` inputs."""
    n, k = weight.shape
    rows, columns = _up(n, PANEL), _up(k, multiple)
    packed = torch.zeros(rows // PANEL, columns // inputs, PANEL, inputs, dtype=weight.dtype)
    flat = weight if (rows, columns) == (n, k) else torch.zeros(rows, columns, dtype=weight.dtype)
    if flat is not weight:
        flat[:n, :k] = weight
    packed.copy_(flat.view(rows // PANEL, PANEL, columns // inputs, inputs).transpose(1, 2))
    return packed
