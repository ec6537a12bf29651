"""Operations by elements, copies of strided tensors and reductions of rows by native kernels, as torch makes them.

Tensors of up to three dimensions that do not fold into each other are taken as they lie; the first may be the tokens of
a step, which a recorded program then changes (`rows`). Sums, differences, products, quotients, extremes and copies are
torch's bit for bit; roots, exponentials and what is made of them are computed in float32 to 5e-7 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from core_plugin_cpu.native.checks import CODES
from core_plugin_cpu.native.entry import Entry

OPERATIONS = {
    name: number
    for number, name in enumerate(
        (
            "same", "negate", "absolute", "relu", "square", "root", "reciprocal_root", "reciprocal", "exponential",
            "tanh", "sigmoid", "silu", "gelu", "gelu_tanh",
            "add", "subtract", "subtract_from", "multiply", "divide", "maximum", "minimum", "softplus",
        )
    )
}  # fmt: skip
"""Numbers of `enum core_map_operation`; those from `add` on take two operands. That of `softplus` is its `beta`."""

REDUCTIONS = {name: number for number, name in enumerate(("sum", "mean", "greatest", "least"))}
"""Numbers of `enum core_reduce_operation`."""

MAP = Entry(
    "map",
    pointers="x y out",
    sizes="outer inner size x_outer x_inner x_step y_outer y_inner y_step out_outer out_inner operation x_dtype "
    "y_dtype out_dtype threads",
    numbers="scalar",
    slots={"outer": "tokens"},
)
COPY = Entry(
    "copy",
    pointers="x out",
    sizes="outer inner size x_outer x_inner x_step out_outer out_inner out_step item threads",
    slots={"outer": "tokens"},
)

REDUCE = Entry(
    "reduce",
    pointers="x out",
    sizes="outer inner size x_outer x_inner x_step out_outer out_inner operation x_dtype out_dtype threads",
    slots={"outer": "tokens"},
)

_Strides = tuple[int, int, int]


def compute(operation: str, out: Tensor, x: Tensor, y: Tensor | float | None = None, *, rows: bool = True) -> bool:
    """Compute `operation(x, y)` into `out`, to whose shape both are expanded; `y` may be a number.

    Args:
        operation: A key of `OPERATIONS`.
        rows: Whether the first dimension stays one of its own, that of the tokens.

    Returns:
        False, with nothing done, where a dtype is neither float32 nor bfloat16 or the tensors lie too irregularly.
    """
    operands = [x, y] if isinstance(y, Tensor) else [x]
    if any(one.dtype not in CODES or not one.is_cpu for one in (*operands, out)):
        return False
    laid = _folded(out.shape, [out.stride(), *(one.expand(out.shape).stride() for one in operands)], rows)
    if laid is None or laid[1][0][2] != 1:
        return False
    sizes, (out_strides, x_strides, *others) = laid
    second = (y.data_ptr(), CODES[y.dtype], 0.0) if isinstance(y, Tensor) else (0, 0, float(y or 0.0))
    pointers = (x.data_ptr(), second[0], out.data_ptr())
    strides = (*x_strides, *(others[0] if others else (0, 0, 0)), *out_strides[:2])
    kinds = (OPERATIONS[operation], CODES[x.dtype], second[1], CODES[out.dtype], torch.get_num_threads())
    MAP(*pointers, *sizes, *strides, *kinds, second[2])
    return True


def copy(out: Tensor, x: Tensor, *, rows: bool = True) -> bool:
    """Copy `x`, expanded to the shape of `out`, into it; both are of one dtype. Otherwise as `compute`."""
    if x.dtype is not out.dtype or not (x.is_cpu and out.is_cpu) or x.element_size() > 8:
        return False
    laid = _folded(out.shape, [out.stride(), x.expand(out.shape).stride()], rows)
    if laid is None:
        return False
    sizes, (out_strides, x_strides) = laid
    COPY(x.data_ptr(), out.data_ptr(), *sizes, *x_strides, *out_strides, x.element_size(), torch.get_num_threads())
    return True


def reduce(operation: str, out: Tensor, x: Tensor, *, rows: bool = True) -> bool:
    """Make one number of each row of `x (..., size)`, into `out (...)`; otherwise as `compute`.

    Args:
        operation: A key of `REDUCTIONS`.
    """
    if any(one.dtype not in CODES or not one.is_cpu for one in (x, out)) or out.shape != x.shape[:-1] or not x.dim():
        return False
    laid = _folded(out.shape, [out.stride(), x.stride()[:-1]], rows)
    if laid is None or laid[0][1] != 1:
        return False
    (outer, _, inner), (out_strides, x_strides) = laid
    sizes = (outer, inner, x.shape[-1], x_strides[0], x_strides[2], x.stride(-1), out_strides[0], out_strides[2])
    kinds = (REDUCTIONS[operation], CODES[x.dtype], CODES[out.dtype], torch.get_num_threads())
    REDUCE(x.data_ptr(), out.data_ptr(), *sizes, *kinds)
    return True


def _folded(
    shape: Sequence[int], strides: Sequence[Sequence[int]], rows: bool
) -> tuple[_Strides, list[_Strides]] | None:
    """Return a shape as `(outer, inner, size)`, and each tensor's strides likewise; None if it has more dimensions."""
    lead = 1 if rows and len(shape) else 0
    folded: list[tuple[int, tuple[int, ...]]] = []
    for dim in range(lead, len(shape)):
        size, apart = shape[dim], tuple(one[dim] for one in strides)
        if size == 1:
            continue
        if folded and all(before == size * now for before, now in zip(folded[-1][1], apart)):
            folded[-1] = (folded[-1][0] * size, apart)
        else:
            folded.append((size, apart))
    if len(folded) > 2:
        return None
    # A row of one element has elements next to each other, whatever its stride.
    whole = [(1, (0,) * len(strides))] * (1 - len(folded)) + folded if folded else [(1, (1,) * len(strides))]
    whole = [(1, (0,) * len(strides))] * (2 - len(whole)) + whole
    outer = (shape[0], tuple(one[0] for one in strides)) if lead else (1, (0,) * len(strides))
    (inner, inner_apart), (size, apart) = whole
    laid = [(outer[1][i], inner_apart[i], apart[i]) for i in range(len(strides))]
    return (outer[0], inner, size), laid
