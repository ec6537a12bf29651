"""Changing logits in place: masks, bias, penalties."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast


@triton.jit
def mask_tokens(logits, bits, rows, size, stride, bits_stride, blocks, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Set the tokens of a tile whose bit is not set to minus infinity."""
    program = tl.program_id(0)
    row = ((program // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    place = ((program % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    inside = (row < rows) & (place < size)
    words = tl.load(bits + row * bits_stride + place // 32, mask=inside, other=0)
    forbidden = inside & (((words >> (place % 32)) & 1) == 0)
    never = cast(tl.full([ROWS, BLOCK], float("-inf"), tl.float32), logits.dtype.element_ty)
    tl.store(logits + row * stride + place, never, mask=forbidden)


@triton.jit
def add_bias(logits, rows, ids, values, count, stride, BLOCK: tl.constexpr):
    """Add `values` to the tokens `ids` of `rows`; no pair is there twice."""
    entry = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < count
    row = tl.load(rows + entry, mask=inside, other=0).to(tl.int64)
    at = logits + row * stride + tl.load(ids + entry, mask=inside, other=0)
    biased = cast(tl.load(at, mask=inside, other=0.0), tl.float32) + tl.load(values + entry, mask=inside, other=0.0)
    tl.store(at, cast(biased, logits.dtype.element_ty), mask=inside)


@triton.jit
def penalize(
    logits, rows, counts, prompt, strengths, entries, size, stride, blocks, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Penalise a tile. `counts` and `prompt (entries, size)` and `strengths (3, entries)` are contiguous."""
    program = tl.program_id(0)
    entry = ((program // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    place = ((program % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    known = entry < entries
    inside = known & (place < size)
    at = logits + tl.load(rows + entry, mask=known, other=0).to(tl.int64) * stride + place
    values = cast(tl.load(at, mask=inside, other=0.0), tl.float32)
    said = tl.load(counts + entry * size + place, mask=inside, other=0)
    read = tl.load(prompt + entry * size + place, mask=inside, other=0)
    repetition = tl.load(strengths + entry, mask=known, other=1.0)
    frequency = tl.load(strengths + entries + entry, mask=known, other=0.0)
    presence = tl.load(strengths + 2 * entries + entry, mask=known, other=0.0)
    factor = tl.where(values > 0, 1.0 / repetition, repetition)
    values = tl.where((said > 0) | (read > 0), values * factor, values)
    values = values - frequency * said.to(tl.float32) - presence * (said > 0).to(tl.float32)
    tl.store(at, cast(values, logits.dtype.element_ty), mask=inside)
