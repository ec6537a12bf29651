"""Scans of channels; forms as in `core.ops.recurrent`. A program has some channels of one row.

A state space goes token by token in rows of few tokens, else by chunks: a token is a function `h -> kept * h + found`
of each number of the state, and what the tokens up to each one of a chunk do together is an associative scan of these.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from core.api.states import State
from core_plugin_kernels_triton.compat import cast
from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.tiles import power_of_two
from core_plugin_kernels_triton.recurrent.rows import dense, on_device, tiles


@triton.jit(do_not_specialize_on_alignment=["slots", "fresh", "starts"])
def scan_kernel(
    x,
    step,
    a,
    b,
    c,
    out,
    memory,
    slots,
    fresh,
    starts,
    channels,
    state_dim,
    x_token,
    step_token,
    b_token,
    c_token,
    slot_stride,
    FEWEST: tl.constexpr,
    BLOCK: tl.constexpr,
    STATE: tl.constexpr,
):
    """Run the state space of `BLOCK` channels, each of `state_dim <= STATE` numbers, in rows of less than `FEWEST`."""
    row = tl.program_id(0)
    first = tl.load(starts + row)
    end = tl.load(starts + row + 1)
    if (first == end) | (end - first >= FEWEST):
        return
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place = tl.arange(0, STATE)
    real = channel < channels
    held = place < state_dim
    there = real[:, None] & held[None, :]
    at = channel[:, None] * state_dim + place[None, :]
    state = memory + tl.load(slots + row) * slot_stride + at
    known = tl.load(fresh + row + channel * 0) == 0
    h = cast(tl.load(state, mask=there & known[:, None], other=0.0), tl.float32)
    rate = cast(tl.load(a + at, mask=there, other=0.0), tl.float32)
    for behind in range(end - first):
        token = (first + behind).to(tl.int64)
        delta = cast(tl.load(step + token * step_token + channel, mask=real, other=0.0), tl.float32)
        given = cast(tl.load(x + token * x_token + channel, mask=real, other=0.0), tl.float32)
        into = cast(tl.load(b + token * b_token + place, mask=held, other=0.0), tl.float32)
        from_it = cast(tl.load(c + token * c_token + place, mask=held, other=0.0), tl.float32)
        h = tl.exp(delta[:, None] * rate) * h + (delta * given)[:, None] * into[None, :]
        found = tl.sum(h * from_it[None, :], 1)
        tl.store(out + token * channels + channel, cast(found, out.dtype.element_ty), mask=real)
    tl.store(state, cast(h, memory.dtype.element_ty), mask=there)


@triton.jit
def both(kept, found, kept_then, found_then):
    """Return what two steps of `h -> kept * h + found` do, one after the other."""
    return kept * kept_then, found * kept_then + found_then


@triton.jit(do_not_specialize_on_alignment=["slots", "fresh", "starts"])
def chunk_kernel(
    x,
    step,
    a,
    b,
    c,
    out,
    memory,
    slots,
    fresh,
    starts,
    channels,
    state_dim,
    x_token,
    step_token,
    b_token,
    c_token,
    slot_stride,
    FEWEST: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    STATE: tl.constexpr,
):
    """Run the same, `CHUNK` tokens at once, in rows of `FEWEST` and more."""
    row = tl.program_id(0)
    first = tl.load(starts + row)
    count = tl.load(starts + row + 1) - first
    if count < FEWEST:
        return
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place = tl.arange(0, STATE)
    line = tl.arange(0, CHUNK)
    real = channel < channels
    held = place < state_dim
    there = real[:, None] & held[None, :]
    at = channel[:, None] * state_dim + place[None, :]
    state = memory + tl.load(slots + row) * slot_stride + at
    known = tl.load(fresh + row + channel * 0) == 0
    h = cast(tl.load(state, mask=there & known[:, None], other=0.0), tl.float32)
    rate = cast(tl.load(a + at, mask=there, other=0.0), tl.float32)
    for begin in range(0, count, CHUNK):
        live = begin + line < count
        token = (first + begin + line).to(tl.int64)[:, None]
        mine = live[:, None] & real[None, :]
        delta = cast(tl.load(step + token * step_token + channel[None, :], mask=mine, other=0.0), tl.float32)
        given = cast(tl.load(x + token * x_token + channel[None, :], mask=mine, other=0.0), tl.float32)
        shared = live[:, None] & held[None, :]
        into = cast(tl.load(b + token * b_token + place[None, :], mask=shared, other=0.0), tl.float32)
        from_it = cast(tl.load(c + token * c_token + place[None, :], mask=shared, other=0.0), tl.float32)
        # Behind the row's last token a step is 0: everything is kept, and nothing comes.
        kept = tl.exp(delta[:, :, None] * rate[None, :, :])
        found = (delta * given)[:, :, None] * into[:, None, :]
        kept, found = tl.associative_scan((kept, found), 0, both)
        states = kept * h[None, :, :] + found
        given = tl.sum(states * from_it[:, None, :], 2)
        tl.store(out + token * channels + channel[None, :], cast(given, out.dtype.element_ty), mask=mine)
        h = tl.sum(tl.where((line == CHUNK - 1)[:, None, None], states, 0.0), 0)
    tl.store(state, cast(h, memory.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize_on_alignment=["slots", "fresh", "starts"])
def gated_kernel(
    x, decay, out, memory, slots, fresh, starts, channels, x_token, decay_token, slot_stride, BLOCK: tl.constexpr
):
    """Sum up `BLOCK` channels."""
    row = tl.program_id(0)
    first = tl.load(starts + row)
    end = tl.load(starts + row + 1)
    if first == end:
        return
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = channel < channels
    state = memory + tl.load(slots + row) * slot_stride + channel
    known = tl.load(fresh + row + channel * 0) == 0
    h = cast(tl.load(state, mask=real & known, other=0.0), tl.float32)
    for behind in range(end - first):
        token = (first + behind).to(tl.int64)
        lost = cast(tl.load(decay + token * decay_token + channel, mask=real, other=0.0), tl.float32)
        h = tl.exp(lost) * h + cast(tl.load(x + token * x_token + channel, mask=real, other=0.0), tl.float32)
        tl.store(out + token * channels + channel, cast(h, out.dtype.element_ty), mask=real)
    tl.store(state, cast(h, memory.dtype.element_ty), mask=real)


def selective_scan(x: Tensor, step: Tensor, a: Tensor, b: Tensor, c: Tensor, state: State) -> Tensor:
    """Run a state space of a diagonal for each channel: `x (T, channels)` -> `(T, channels)`."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        counts, fewest = np.diff(state.rows.starts), tiles(x.device)["scan"]["fewest"]
        which = bool((counts < fewest).any()), bool((counts >= fewest).any())
        launch_scan(dense(x), dense(step), a.contiguous(), dense(b), dense(c), out, *on_device(state), *which)
    return out


@launch(
    "Tensor x, Tensor step, Tensor a, Tensor b, Tensor c, Tensor(a!) out, Tensor(b!) memory, Tensor slots, "
    "Tensor fresh, Tensor starts, bool short, bool long"
)
def launch_scan(
    x: Tensor,
    step: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    out: Tensor,
    memory: Tensor,
    slots: Tensor,
    fresh: Tensor,
    starts: Tensor,
    short: bool,
    long: bool,
) -> None:
    """Write what tokens find to `out`, and the states.

    Args:
        short: Whether some row has so few tokens that it goes token by token.
        long: Whether some row has more.
    """
    channels, state_dim = a.shape
    width, table = power_of_two(state_dim), tiles(x.device)["scan"]
    given = (x, step, a, b, c, out, memory, slots, fresh, starts, channels, state_dim)
    strides = (x.stride(0), step.stride(0), b.stride(0), c.stride(0), memory.stride(0))
    same = {"FEWEST": table["fewest"], "STATE": width, "num_warps": 4}
    if short:
        block = min(power_of_two(channels), max(1, table["tile"] // width))
        scan_kernel[slots.shape[0], -(-channels // block)](*given, *strides, BLOCK=block, **same)
    if long:
        chunk = table["chunk"]
        block = min(power_of_two(channels), max(1, table["chunked"] // (chunk * width)))
        chunk_kernel[slots.shape[0], -(-channels // block)](*given, *strides, CHUNK=chunk, BLOCK=block, **same)


def gated_recurrence(x: Tensor, decay: Tensor, state: State) -> Tensor:
    """Sum up what decays, channel by channel: `h = exp(decay) * h + x`, `(T, channels)` -> h `(T, channels)`."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        launch_gated(dense(x), dense(decay), out, *on_device(state))
    return out


@launch("Tensor x, Tensor decay, Tensor(a!) out, Tensor(b!) memory, Tensor slots, Tensor fresh, Tensor starts")
def launch_gated(
    x: Tensor, decay: Tensor, out: Tensor, memory: Tensor, slots: Tensor, fresh: Tensor, starts: Tensor
) -> None:
    """Write the sums to `out`, and the states."""
    channels = x.shape[1]
    block = min(power_of_two(channels), tiles(x.device)["gated"]["channels"])
    gated_kernel[slots.shape[0], -(-channels // block)](
        *(x, decay, out, memory, slots, fresh, starts, channels, x.stride(0), decay.stride(0), memory.stride(0)),
        BLOCK=block,
        num_warps=4,
    )
