"""Recurrences by native kernels (`csrc/cpu/recurrent/recurrent.h`); forms as in `core.ops.recurrent`.

Activations are float32 or bfloat16, decays and steps float32; so are states, except that of a convolution, which may
have the dtype of its activations. Tokens may lie apart, what belongs to one token is contiguous. `ValueError`: tensors
do not belong together. `IndexError`: rows that do not share the step's tokens, or slots that are not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from core_plugin_cpu.native.checks import CODES, STATE_ROWS, code, explain, shown, unfit
from core_plugin_cpu.native.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from core.api.states import State, StateRows

MOST_CONV_WIDTH, MOST_KEY_DIM, MOST_STATE_DIM = 16, 256, 256
"""`CORE_MOST_*`: what the kernels have room for."""

_SLOTS = {name: name for name in ("state_slots", "fresh")} | {
    "query_starts": "state_starts",
    "rows": "state_rows",
    "tokens": "tokens",
}

CAUSAL_CONV = Entry(
    "causal_conv",
    pointers="x weight bias out state state_slots fresh query_starts",
    sizes="tokens rows channels width x_stride slot_stride activation dtype weight_dtype state_dtype threads",
    slots=_SLOTS,
)
LINEAR_ATTENTION = Entry(
    "linear_attention",
    pointers="q k v decay beta out state state_slots fresh query_starts",
    sizes="tokens rows heads key_heads key_dim value_dim q_stride k_stride v_stride decay_stride beta_stride "
    "slot_stride per_key dtype threads",
    numbers="scale",
    slots=_SLOTS,
)
SELECTIVE_SCAN = Entry(
    "selective_scan",
    pointers="x step a b c out state state_slots fresh query_starts",
    sizes="tokens rows channels state_dim x_stride step_stride b_stride c_stride slot_stride dtype threads",
    slots=_SLOTS,
)
GATED_RECURRENCE = Entry(
    "gated_recurrence",
    pointers="x decay out state state_slots fresh query_starts",
    sizes="tokens rows channels x_stride decay_stride slot_stride dtype threads",
    slots=_SLOTS,
)

_INT32 = np.dtype(np.int32)
_FLOAT32 = (torch.float32,)


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, state: State, activation: bool) -> Tensor:
    """Convolve each channel of `x (T, channels)` with the tokens before, by `weight (channels, width)`."""
    what = "causal_conv"
    dtype = code(x, what)
    if x.dim() != 2 or weight.dim() != 2 or len(weight) != x.shape[1] or not weight.is_contiguous():
        raise unfit(what, x=x, weight=weight)
    (tokens, channels), width = x.shape, weight.shape[1]
    if not 2 <= width <= MOST_CONV_WIDTH:
        raise ValueError(f"{what}: a width of 2 to {MOST_CONV_WIDTH} expected, got {shown(weight)}")
    if bias is not None and (bias.shape != (channels,) or bias.dtype is not weight.dtype or not _plain(bias)):
        raise unfit(what, weight=weight, bias=bias)
    rows = _rows(what, state, (channels, width - 1), tokens, (torch.float32, x.dtype))
    x, memory = _tokens(x), state.memory
    out = torch.empty(x.shape, dtype=x.dtype)
    pointers = (x.data_ptr(), weight.data_ptr(), 0 if bias is None else bias.data_ptr(), out.data_ptr())
    sizes = (tokens, len(state.rows.slots), channels, width, x.stride(0), memory.stride(0), int(activation))
    kinds = (dtype, code(weight, what), CODES[memory.dtype], torch.get_num_threads())
    CAUSAL_CONV(*pointers, memory.data_ptr(), *rows, *sizes, *kinds)
    return out


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor | None, state: State, scale: float
) -> Tensor:
    """Attend by a matrix for each head; `q, k (T, key_heads, key_dim)`, `v (T, heads, value_dim)`."""
    what = "linear_attention"
    dtype = code(v, what)
    if v.dim() != 3 or k.dim() != 3 or q.shape != k.shape or len(k) != len(v) or not (q.dtype is k.dtype is v.dtype):
        raise unfit(what, q=q, k=k, v=v)
    (tokens, heads, value_dim), (_, key_heads, key_dim) = v.shape, k.shape
    if heads % key_heads or key_dim > MOST_KEY_DIM or not (q.is_cpu and k.is_cpu):
        raise unfit(f"{what}, whole groups of heads and keys of {MOST_KEY_DIM} dimensions at most", k=k, v=v)
    per_key = decay.dim() == 3
    if decay.shape != ((tokens, heads, key_dim) if per_key else (tokens, heads)) or not _float32(decay):
        raise unfit(f"{what}, decays of float32 for each head or key dimension", v=v, decay=decay)
    if beta is not None and (beta.shape != (tokens, heads) or not _float32(beta)):
        raise unfit(f"{what}, beta of float32 for each head", v=v, beta=beta)
    rows = _rows(what, state, (heads, key_dim, value_dim), tokens, _FLOAT32)
    q, k, v, decay = map(_tokens, (q, k, v, decay))
    beta = None if beta is None else _tokens(beta)
    out = torch.empty(v.shape, dtype=v.dtype)
    pointers = (q.data_ptr(), k.data_ptr(), v.data_ptr(), decay.data_ptr(), 0 if beta is None else beta.data_ptr())
    sizes = (tokens, len(state.rows.slots), heads, key_heads, key_dim, value_dim)
    strides = (*(one.stride(0) for one in (q, k, v, decay)), 0 if beta is None else beta.stride(0))
    kinds = (state.memory.stride(0), int(per_key), dtype, torch.get_num_threads(), scale)
    LINEAR_ATTENTION(*pointers, out.data_ptr(), state.memory.data_ptr(), *rows, *sizes, *strides, *kinds)
    return out


def selective_scan(x: Tensor, step: Tensor, a: Tensor, b: Tensor, c: Tensor, state: State) -> Tensor:
    """Run a diagonal state space for each channel of `x (T, channels)`; `a (channels, N)`, `b, c (T, N)`."""
    what = "selective_scan"
    dtype = code(x, what)
    if x.dim() != 2 or step.shape != x.shape or not _float32(step):
        raise unfit(f"{what}, steps of float32 for each channel", x=x, step=step)
    (tokens, channels), state_dim = x.shape, a.shape[-1]
    if a.shape != (channels, state_dim) or not _float32(a) or not a.is_contiguous() or state_dim > MOST_STATE_DIM:
        raise unfit(f"{what}, contiguous float32 numbers, {MOST_STATE_DIM} at most for each channel", x=x, a=a)
    for one in (b, c):
        if one.shape != (tokens, state_dim) or one.dtype is not x.dtype or not one.is_cpu:
            raise unfit(what, x=x, a=a, b=b, c=c)
    rows = _rows(what, state, (channels, state_dim), tokens, _FLOAT32)
    x, step, b, c = map(_tokens, (x, step, b, c))
    out = torch.empty(x.shape, dtype=x.dtype)
    pointers = (*(one.data_ptr() for one in (x, step, a, b, c, out, state.memory)), *rows)
    strides = (*(one.stride(0) for one in (x, step, b, c)), state.memory.stride(0))
    sizes = (tokens, len(state.rows.slots), channels, state_dim)
    SELECTIVE_SCAN(*pointers, *sizes, *strides, dtype, torch.get_num_threads())
    return out


def gated_recurrence(x: Tensor, decay: Tensor, state: State) -> Tensor:
    """Sum up what decays, channel by channel of `x (T, channels)`."""
    what = "gated_recurrence"
    dtype = code(x, what)
    if x.dim() != 2 or decay.shape != x.shape or not _float32(decay):
        raise unfit(f"{what}, decays of float32 for each channel", x=x, decay=decay)
    tokens, channels = x.shape
    rows = _rows(what, state, (channels,), tokens, _FLOAT32)
    x, decay = _tokens(x), _tokens(decay)
    out = torch.empty(x.shape, dtype=x.dtype)
    pointers = (*(one.data_ptr() for one in (x, decay, out, state.memory)), *rows)
    strides = (x.stride(0), decay.stride(0), state.memory.stride(0))
    GATED_RECURRENCE(*pointers, tokens, len(state.rows.slots), channels, *strides, dtype, torch.get_num_threads())
    return out


def _rows(
    what: str, state: State, shape: tuple[int, ...], tokens: int, dtypes: Sequence[torch.dtype]
) -> tuple[int, int, int]:
    """Return the addresses of slots, of what is fresh, and of the rows' tokens.

    Raises:
        ValueError: The memory has another shape or dtype, or what is said of the rows has.
        IndexError: A row or slot is none of the step's or the memory's.
    """
    memory, rows = state.memory, state.rows
    fits = memory.shape[1:] == shape and memory.dtype in dtypes and memory.is_cpu
    if not fits or (len(memory) and not memory[0].is_contiguous()):
        wanted = " or ".join(sorted({str(one) for one in dtypes}))
        raise unfit(f"{what}: a slot of {shape} {wanted} and", memory=memory)
    if not all(_numbers(one, len(rows.slots)) for one in (rows.slots, rows.fresh)):
        raise unfit(f"{what}: contiguous (rows,) int64 on the CPU and", slots=rows.slots, fresh=rows.fresh)
    starts = rows.starts
    if starts.dtype != _INT32 or starts.shape != (len(rows.slots) + 1,) or starts.strides != (4,):
        raise ValueError(f"{what}: {len(rows.slots)} rows have {starts.shape} {starts.dtype} offsets of their tokens")
    return _compared(rows, tokens, len(memory))


def _compared(rows: StateRows, tokens: int, slots: int) -> tuple[int, int, int]:
    places = (rows.slots.data_ptr(), rows.fresh.data_ptr(), rows.starts.ctypes.data)
    arguments = (*places, len(rows.slots), tokens, slots)
    if STATE_ROWS(*arguments):
        raise IndexError(explain(STATE_ROWS, dict(zip(STATE_ROWS.fields, arguments))))
    return places


def _tokens(x: Tensor) -> Tensor:
    """Return `x (T, ...)` with what belongs to a token next to each other."""
    apart = 1
    for size, stride in zip(reversed(x.shape[1:]), reversed(x.stride()[1:])):
        if stride != apart and size > 1:
            return x.contiguous()
        apart *= size
    return x


def _numbers(x: Tensor, count: int) -> bool:
    return x.dtype is torch.int64 and x.shape == (count,) and _plain(x)


def _float32(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.is_cpu


def _plain(x: Tensor) -> bool:
    return x.is_cpu and x.is_contiguous()
