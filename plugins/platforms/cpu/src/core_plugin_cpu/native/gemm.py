"""Matrix products with packed weights: `y (m, n) = x (m, k) . W (n, k)^T + bias`, optionally with each row's argmax.

`pack*` bring a weight into the layout of `csrc/cpu/gemm/gemm.h`, once, at load; `linear`, `argmax` and `lookup` use it.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from core_plugin_cpu.native.checks import CODES, TOKEN_IDS, check_places, code, shown
from core_plugin_cpu.native.entry import Entry
from core_plugin_cpu.native.library import library
from core_plugin_cpu.native.pack_floats import pack_float4, pack_float8, pack_table
from core_plugin_cpu.native.packed import (
    Format,
    PackedWeight,
    pack,
    pack_blocks,
    pack_groups,
    pack_int8,
    packed_bytes,
)

__all__ = [
    "CODES",
    "GEMM",
    "GEMM_GATED",
    "LOOKUP",
    "Format",
    "PackedWeight",
    "apply",
    "argmax",
    "gated_rows",
    "linear",
    "lookup",
    "pack",
    "pack_blocks",
    "pack_float4",
    "pack_float8",
    "pack_groups",
    "pack_int8",
    "pack_table",
    "workspace_bytes",
]

GEMM = Entry(
    "gemm",
    pointers="x w order bias y best workspace",
    sizes="m n k x_stride y_stride x_dtype y_dtype format threads",
    slots={"m": "tokens"},
)
GEMM_GATED = Entry(
    "gemm_gated",
    pointers="x w order bias y out workspace",
    sizes="m n k x_stride y_stride out_stride x_dtype y_dtype format activation threads",
    slots={"m": "tokens"},
)
"""A product whose results go through a gated activation; made of two calls by `native.fusion`."""

LOOKUP = Entry(
    "lookup",
    pointers="w ids out",
    sizes="count k out_dtype format threads",
    slots={"ids": "token_ids", "count": "tokens"},
)


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
    x_code = code(x, "a packed product")
    _check(x, weight, bias, y)
    y_code = CODES[(x.dtype if dtype is None else dtype) if y is None else y.dtype]
    strides = (x.stride(0), 0 if y is None else y.stride(0))
    sizes = (x.shape[0], weight.n, weight.k, *strides, x_code, y_code, weight.code, torch.get_num_threads())
    if workspace is None:
        workspace = torch.empty(workspace_bytes(sizes, ordered=weight.order is not None), dtype=torch.uint8)
    parts = (x, weight.data, weight.order, bias, y, best, workspace)
    GEMM(*(_address(part) for part in parts), *sizes)


def workspace_bytes(sizes: tuple[int, ...], *, ordered: bool = False) -> int:
    """Return the bytes of workspace of a call with these `sizes` (fields of `GEMM`) or fewer rows.

    Args:
        ordered: Whether the weight has an `order`.
    """
    function = library().core_cpu_gemm_workspace
    function.restype = ctypes.c_int64
    return int(function(GEMM.pack(0, 0, int(ordered), 0, 0, 0, 0, *sizes)))


def gated_rows(packed: bytes) -> int:
    """Return the rows of `y` that a `GEMM_GATED` with these arguments or fewer rows writes."""
    function = library().core_cpu_gemm_gated_rows
    function.restype = ctypes.c_int64
    return int(function(packed))


def lookup(weight: PackedWeight, ids: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the rows `ids (count,) int64` of a packed weight, decoded: `(count, k)` float32 or bfloat16.

    Raises:
        ValueError, IndexError: As `checks.check_places`.
    """
    check_places(TOKEN_IDS, ids, weight.n, "lookup")
    out = torch.empty(len(ids), weight.k, dtype=dtype)
    sizes = (len(ids), weight.k, CODES[dtype], weight.code, torch.get_num_threads())
    LOOKUP(weight.data.data_ptr(), ids.data_ptr(), out.data_ptr(), *sizes)
    return out


def _check(x: Tensor, weight: PackedWeight, bias: Tensor | None, y: Tensor | None) -> None:
    if x.dim() != 2 or x.shape[1] != weight.k:
        raise ValueError(f"x of shape {tuple(x.shape)} does not fit a packed weight of {weight.k} inputs")
    if weight.data.nbytes < packed_bytes(weight.format, weight.n, weight.k) or not weight.data.is_contiguous():
        wanted = f"{weight.format.name} ({weight.n}, {weight.k})"
        raise ValueError(f"a packed weight {wanted} does not lie in {shown(weight.data)}")
    if weight.order is not None and (weight.order.dtype is not torch.int32 or weight.order.shape != (weight.k,)):
        raise ValueError(f"an order of {shown(weight.order)} is none of {weight.k} inputs")
    if y is not None and (y.shape != (x.shape[0], weight.n) or y.stride(1) != 1 or y.dtype not in CODES):
        raise ValueError(f"y of shape {tuple(y.shape)} is no place for ({x.shape[0]}, {weight.n})")
    if bias is not None and (bias.dtype != torch.float32 or bias.shape != (weight.n,) or not bias.is_contiguous()):
        raise ValueError(f"bias must be ({weight.n},) float32 and contiguous")


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
