"""Norms, gated activations, rotary embedding and embedding lookup by native kernels; forms as in `core.ops`.

Every function takes contiguous last dimensions and float32 or bfloat16, and computes in float32. It raises `ValueError`
for tensors that do not belong together, and `IndexError` for numbers that are no places.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core_plugin_cpu.native.checks import POSITIONS, TOKEN_IDS, check_places, code, unfit
from core_plugin_cpu.native.entry import Entry

ACTIVATIONS = {"silu": 0, "gelu": 1, "gelu_pytorch_tanh": 2}

RMS_NORM = Entry(
    "rms_norm",
    pointers="x residual weight total out",
    sizes="outer inner size x_outer x_inner dtype threads",
    numbers="eps",
    slots={"outer": "tokens"},
)
GATED = Entry(
    "gated",
    pointers="x out",
    sizes="rows size x_stride out_stride activation dtype threads",
    slots={"rows": "tokens"},
)
GATHER = Entry(
    "gather",
    pointers="table ids out",
    sizes="count row_bytes threads",
    slots={"ids": "token_ids", "count": "tokens"},
)
LAYER_NORM = Entry(
    "layer_norm",
    pointers="x residual weight bias total out",
    sizes="rows size x_stride residual_stride dtype threads",
    numbers="eps",
    slots={"rows": "tokens"},
)
ACTIVATE = Entry(
    "activate",
    pointers="x out",
    sizes="rows size x_stride out_stride activation dtype threads",
    slots={"rows": "tokens"},
)
SHIFT = Entry("shift", pointers="x out", sizes="count amount", slots={"x": "positions", "count": "tokens"})
ROPE_KV = Entry(
    "rope_kv",
    pointers="q k v q_out k_out cache positions slots cos sin",
    sizes="tokens heads kv_heads head_dim rotary interleaved q_stride k_stride v_stride q_out_stride k_out_stride "
    "table_stride block_size block_stride dtype table_dtype threads",
    slots={"tokens": "tokens", "positions": "positions", "slots": "slots"},
)


_MOST_ROTATED = 1024
"""Dimensions of a head that the native code has room for."""


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the RMS norm of `x (..., size)` over the last dimension; up to two leading ones may be strided."""
    size, dtype = x.shape[-1], code(x, "rms_norm")
    _check_weights("rms_norm", x, weight)
    x = _plain(x)
    outer, inner, outer_stride, inner_stride = _leading(x)
    out = torch.empty(x.shape, dtype=x.dtype)
    pointers = (x.data_ptr(), 0, weight.data_ptr(), 0, out.data_ptr())
    RMS_NORM(*pointers, outer, inner, size, outer_stride, inner_stride, dtype, torch.get_num_threads(), eps)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return `(rms_norm(x + residual), x + residual)`, the sum rounded to the dtype before it is normalised."""
    size, dtype = x.shape[-1], code(x, "add_rms_norm")
    _check_weights("add_rms_norm", x, weight)
    _check_same("add_rms_norm", x, residual)
    x, residual = _plain(x), residual.contiguous()
    outer, inner, outer_stride, inner_stride = _leading(x)
    out, total = torch.empty(x.shape, dtype=x.dtype), torch.empty(x.shape, dtype=x.dtype)
    pointers = (x.data_ptr(), residual.data_ptr(), weight.data_ptr(), total.data_ptr(), out.data_ptr())
    RMS_NORM(*pointers, outer, inner, size, outer_stride, inner_stride, dtype, torch.get_num_threads(), eps)
    return out, total


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Return the layer norm of `x (..., size)` over the last dimension."""
    dtype = code(x, "layer_norm")
    _check_weights("layer_norm", x, weight, bias)
    rows = _rows(x)
    out = torch.empty(x.shape, dtype=x.dtype)
    pointers = (rows.data_ptr(), 0, weight.data_ptr(), 0 if bias is None else bias.data_ptr(), 0, out.data_ptr())
    threads = torch.get_num_threads()
    LAYER_NORM(*pointers, rows.shape[0], rows.shape[1], rows.stride(0), 0, dtype, threads, eps)
    return out


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Return `(layer_norm(x + residual), x + residual)`, the sum rounded to the dtype before it is normalised."""
    dtype = code(x, "add_layer_norm")
    _check_weights("add_layer_norm", x, weight, bias)
    _check_same("add_layer_norm", x, residual)
    rows, others = _rows(x), _rows(residual)
    out, total = torch.empty(x.shape, dtype=x.dtype), torch.empty(x.shape, dtype=x.dtype)
    parameters = (weight.data_ptr(), 0 if bias is None else bias.data_ptr())
    pointers = (rows.data_ptr(), others.data_ptr(), *parameters, total.data_ptr(), out.data_ptr())
    sizes = (*rows.shape, rows.stride(0), others.stride(0), dtype, torch.get_num_threads())
    LAYER_NORM(*pointers, *sizes, eps)
    return out, total


def activate(x: Tensor, activation: str) -> Tensor:
    """Return `act(x)` of every element; `activation` is a key of `ACTIVATIONS`."""
    kind, dtype = ACTIVATIONS[activation], code(x, activation)
    rows = _rows(x)
    out = torch.empty(x.shape, dtype=x.dtype)
    count, size = rows.shape
    ACTIVATE(rows.data_ptr(), out.data_ptr(), count, size, rows.stride(0), size, kind, dtype, torch.get_num_threads())
    return out


def shift(x: Tensor, amount: int) -> Tensor:
    """Return `x + amount` of a contiguous `x (count,)` int64."""
    if x.dtype is not torch.int64 or x.dim() != 1 or not x.is_cpu or not x.is_contiguous():
        raise unfit("shift", x=x)
    out = torch.empty(x.shape, dtype=x.dtype)
    SHIFT(x.data_ptr(), out.data_ptr(), len(x), amount)
    return out


def gated(x: Tensor, activation: str) -> Tensor:
    """Return `act(gate) * up` of `x (..., 2 * size)` as `[gate, up]`; `activation` is a key of `ACTIVATIONS`."""
    kind, dtype = ACTIVATIONS[activation], code(x, f"gated {activation}")
    if x.shape[-1] < 2 or x.shape[-1] % 2:
        raise unfit(f"gated {activation}: the two halves of", x=x)
    x = x.contiguous()
    size = x.shape[-1] // 2
    out = torch.empty(*x.shape[:-1], size, dtype=x.dtype)
    rows = out.numel() // size
    GATED(x.data_ptr(), out.data_ptr(), rows, size, 2 * size, size, kind, dtype, torch.get_num_threads())
    return out


def gather(table: Tensor, ids: Tensor) -> Tensor:
    """Return the rows `ids (count,) int64` of a contiguous `table (rows, size)` of any dtype."""
    if table.dim() != 2 or not table.is_cpu or not table.is_contiguous():
        raise unfit("gather", table=table)
    check_places(TOKEN_IDS, ids, table.shape[0], "gather")
    out = torch.empty(len(ids), table.shape[1], dtype=table.dtype)
    row_bytes = table.shape[1] * table.element_size()
    GATHER(table.data_ptr(), ids.data_ptr(), out.data_ptr(), len(ids), row_bytes, torch.get_num_threads())
    return out


def rotary(
    positions: Tensor, q: Tensor, k: Tensor, table: Tensor, *, interleaved: bool = False
) -> tuple[Tensor, Tensor]:
    """Rotate `q (tokens, heads, head_dim)` and `k (tokens, kv_heads, head_dim)` by position.

    Args:
        positions: `(tokens,)` int64.
        table: `(positions, 2 * rotary_dim)`, made by `core.ops.rotary_table`: cos twice, then -sin, sin.
        interleaved: Dimensions 2i and 2i + 1 form a pair, not i and i + `rotary_dim` / 2.
    """
    tokens, heads, head_dim = q.shape
    kv_heads, dims, dtype = k.shape[1], table.shape[1] // 2, code(q, "rotary")
    if k.shape != (tokens, kv_heads, head_dim) or k.dtype is not q.dtype or not k.is_cpu or len(positions) != tokens:
        raise unfit("rotary", positions=positions, q=q, k=k)
    if dims > min(head_dim, _MOST_ROTATED) or dims % 2 or table.shape[1] % 2 or not table.is_contiguous():
        raise unfit("rotary", q=q, table=table)
    check_places(POSITIONS, positions, table.shape[0], "rotary")
    q, k = packed_heads(q), packed_heads(k)
    q_out, k_out = torch.empty(q.shape, dtype=q.dtype), torch.empty(k.shape, dtype=k.dtype)
    cos = table.data_ptr()
    sin = cos + (dims + dims // 2) * table.element_size()
    pointers = (q.data_ptr(), k.data_ptr(), 0, q_out.data_ptr(), k_out.data_ptr(), 0, positions.data_ptr(), 0, cos, sin)
    strides = (q.stride(0), k.stride(0), 0, heads * head_dim, kv_heads * head_dim, table.stride(0))
    shape = (tokens, heads, kv_heads, head_dim, dims, int(interleaved))
    ROPE_KV(*pointers, *shape, *strides, 1, 0, dtype, code(table, "rotary"), torch.get_num_threads())
    return q_out, k_out


def _check_weights(what: str, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Refuse weights that are not `(size,)` of the dtype of `x (..., size)`."""
    for one in (weight, bias):
        if one is not None and (
            one.shape != x.shape[-1:] or one.dtype is not x.dtype or not one.is_cpu or not one.is_contiguous()
        ):
            raise unfit(what, x=x, weights=one)


def _check_same(what: str, x: Tensor, residual: Tensor) -> None:
    """Refuse a residual that is not what `x` is."""
    if residual.shape != x.shape or residual.dtype is not x.dtype or not residual.is_cpu:
        raise unfit(what, x=x, residual=residual)


def _rows(x: Tensor) -> Tensor:
    """Return `x (..., size)` as `(rows, size)` with contiguous rows."""
    if x.dim() == 2 and (x.stride(1) == 1 or x.shape[1] == 1):
        return x
    return x.contiguous().view(-1, x.shape[-1])


def _plain(x: Tensor) -> Tensor:
    """Return `x` with a contiguous last dimension and at most two leading ones."""
    return x if x.stride(-1) == 1 and x.dim() in (2, 3) else x.contiguous().view(-1, x.shape[-1]).view(x.shape)


def _leading(x: Tensor) -> tuple[int, int, int, int]:
    """Return `(outer, inner, outer stride, inner stride)` of the rows."""
    if x.dim() == 2:
        return x.shape[0], 1, x.stride(0), 0
    if x.dim() == 3:
        return x.shape[0], x.shape[1], x.stride(0), x.stride(1)
    return x.numel() // x.shape[-1], 1, x.shape[-1], 0


def packed_heads(x: Tensor) -> Tensor:
    """Return `x (tokens, heads, head_dim)` with every token's heads next to each other."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()
