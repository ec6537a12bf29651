"""Rows of a matrix by number."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def look_up(ids, weight, out, rows, width, stride, blocks, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Copy parts of the rows `ids` of `weight` to the same parts of `out (rows, width)`."""
    program = tl.program_id(0)
    row = (program // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place = ((program % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    known = row < rows
    inside = known[:, None] & (place < width)
    number = tl.load(ids + row, mask=known, other=0).to(tl.int64)
    values = tl.load(weight + (number * stride)[:, None] + place, mask=inside, other=0.0)
    tl.store(out + (row * width)[:, None] + place, values, mask=inside)
