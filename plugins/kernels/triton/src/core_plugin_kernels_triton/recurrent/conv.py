"""Short convolutions over the tokens of each row; the form as in `core.ops.recurrent.causal_conv`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from core.api.states import State
from core_plugin_kernels_triton.attention.prompts import row_of
from core_plugin_kernels_triton.compat import cast
from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.tiles import power_of_two
from core_plugin_kernels_triton.recurrent.rows import dense, on_device, tiles


@triton.jit(do_not_specialize=["rows"], do_not_specialize_on_alignment=["slots", "fresh", "starts"])
def conv_kernel(
    x,
    weight,
    bias,
    out,
    memory,
    slots,
    fresh,
    starts,
    rows,
    channels,
    x_token,
    slot_stride,
    WIDTH: tl.constexpr,
    BIASED: tl.constexpr,
    ACTIVATED: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Convolve some tokens of a row in some channels. States are read only."""
    tile = tl.program_id(0)
    row = row_of(tile, starts, rows, TOKENS)
    first = tl.load(starts + row)
    count = tl.load(starts + row + 1) - first
    begin = (tile - first // TOKENS - row) * TOKENS
    if begin >= count:
        return
    t = begin + tl.arange(0, TOKENS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (t < count)[:, None] & (c < channels)[None, :]
    known = tl.load(fresh + row + c * 0) == 0
    held_at = memory + tl.load(slots + row) * slot_stride + (c * (WIDTH - 1))[None, :]
    total = tl.zeros([TOKENS, BLOCK], tl.float32)
    for place in tl.static_range(WIDTH):
        at = (t - (WIDTH - 1 - place))[:, None]  # the number of a token in the row; those before are in the state
        factor = cast(tl.load(weight + c * WIDTH + place, mask=c < channels, other=0.0), tl.float32)[None, :]
        given_at = x + (first + at).to(tl.int64) * x_token + c[None, :]
        given = cast(tl.load(given_at, mask=inside & (at >= 0), other=0.0), tl.float32)
        held = cast(tl.load(held_at + at + (WIDTH - 1), mask=inside & (at < 0) & known[None, :], other=0.0), tl.float32)
        total += factor * tl.where(at >= 0, given, held)
    if BIASED:
        total += cast(tl.load(bias + c, mask=c < channels, other=0.0), tl.float32)[None, :]
    if ACTIVATED:
        total = total / (1.0 + tl.exp(-total))
    to = out + (first + t).to(tl.int64)[:, None] * channels + c[None, :]
    tl.store(to, cast(total, out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize_on_alignment=["slots", "fresh", "starts"])
def conv_state_kernel(
    x, memory, slots, fresh, starts, channels, x_token, slot_stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Leave the latest tokens of a row in its state, in some channels.

    A thread has a channel to itself, and reads a column of the state before it writes it: columns move to the left.
    """
    row = tl.program_id(0)
    first = tl.load(starts + row)
    count = tl.load(starts + row + 1) - first
    if count == 0:
        return
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = c < channels
    known = tl.load(fresh + row + c * 0) == 0
    state = memory + tl.load(slots + row) * slot_stride + c * (WIDTH - 1)
    for place in tl.static_range(WIDTH - 1):
        at = count - (WIDTH - 1) + place + c * 0
        given = tl.load(x + (first + at).to(tl.int64) * x_token + c, mask=real & (at >= 0), other=0.0)
        held = tl.load(state + (at + (WIDTH - 1)), mask=real & (at < 0) & known, other=0.0)
        kept = tl.where(at >= 0, cast(given, tl.float32), cast(held, tl.float32))
        tl.store(state + place, cast(kept, memory.dtype.element_ty), mask=real)


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, state: State, activation: bool) -> Tensor:
    """Convolve each channel with the tokens before: `x (T, channels)` -> `(T, channels)`."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        launch_conv(dense(x), weight.contiguous(), bias, out, *on_device(state), activation)
    return out


@launch(
    "Tensor x, Tensor weight, Tensor? bias, Tensor(a!) out, Tensor(b!) memory, Tensor slots, Tensor fresh, "
    "Tensor starts, bool activation"
)
def launch_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    out: Tensor,
    memory: Tensor,
    slots: Tensor,
    fresh: Tensor,
    starts: Tensor,
    activation: bool,
) -> None:
    """Write the convolution to `out`, then the states."""
    (tokens, channels), width, rows = x.shape, weight.shape[1], slots.shape[0]
    table = tiles(x.device)["conv"]
    block = min(table["channels"], power_of_two(channels))
    blocks = -(-channels // block)
    conv_kernel[tokens // table["tokens"] + rows, blocks](
        *(x, weight, bias, out, memory, slots, fresh, starts, rows, channels, x.stride(0), memory.stride(0)),
        WIDTH=width,
        BIASED=bias is not None,
        ACTIVATED=activation,
        TOKENS=table["tokens"],
        BLOCK=block,
        num_warps=4,
    )
    conv_state_kernel[rows, blocks](
        *(x, memory, slots, fresh, starts, channels, x.stride(0), memory.stride(0)),
        WIDTH=width,
        BLOCK=block,
        num_warps=4,
    )
