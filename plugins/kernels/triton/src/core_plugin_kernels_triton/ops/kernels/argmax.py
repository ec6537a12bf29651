"""The best token of each row: sections of the vocabulary beside each other, then the best of their best."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast

NOWHERE = tl.constexpr(0x7FFFFFFF)


@triton.jit
def best_of_sections(
    logits, best, places, rows, size, stride, section, sections, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Write the best value of a section of some rows, and the first place it stands at.

    A section with a NaN has the value NaN, and its first place.
    """
    row, part = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    known = row < rows
    start = part * section
    end = tl.minimum(start + section, size)
    lane = tl.arange(0, BLOCK)[None, :]
    top = tl.full([ROWS, BLOCK], float("-inf"), tl.float32)
    top_place = tl.zeros([ROWS, BLOCK], tl.int32) + start + lane
    strange = tl.zeros([ROWS, BLOCK], tl.int32)
    for first in range(start, end, BLOCK):
        place = first + lane
        inside = known[:, None] & (place < end)
        at = logits + (row * stride)[:, None] + place
        values = cast(tl.load(at, mask=inside, other=float("-inf")), tl.float32)
        strange |= (values != values).to(tl.int32)
        better = values > top  # of equal ones the first stays
        top = tl.where(better, values, top)
        top_place = tl.where(better, place, top_place)
    value = tl.max(top, 1)
    place = tl.min(tl.where(top == value[:, None], top_place, NOWHERE), 1)
    failed = tl.max(strange, 1) > 0
    at = row * sections + part
    tl.store(best + at, tl.where(failed, float("nan"), value), mask=known)
    tl.store(places + at, tl.where(failed, start, place).to(tl.int64), mask=known)


@triton.jit
def best_of_rows(
    section_best, section_places, best, places, rows, sections, ROWS: tl.constexpr, SECTIONS: tl.constexpr
):
    """Write the best of some rows' sections. Sections are in order, so the lowest place is the first of equal ones."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    part = tl.arange(0, SECTIONS)[None, :]
    known = row < rows
    inside = known[:, None] & (part < sections)
    at = (row * sections)[:, None] + part
    values = tl.load(section_best + at, mask=inside, other=float("-inf"))
    found = tl.load(section_places + at, mask=inside, other=0)
    strange = values != values
    sound = tl.where(strange, float("-inf"), values)
    value = tl.max(sound, 1)
    place = tl.min(tl.where(inside & (sound == value[:, None]), found, NOWHERE), 1)
    failed = tl.max(strange.to(tl.int32), 1) > 0
    tl.store(best + row, tl.where(failed, float("nan"), value), mask=known)
    tl.store(places + row, tl.where(failed, 0, place).to(tl.int64), mask=known)
