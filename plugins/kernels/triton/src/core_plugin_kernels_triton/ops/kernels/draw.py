"""Drawing tokens by inverting the cumulative distribution, after top-k, top-p and min-p.

Masses are whole numbers, the best token's 2^40: so sums do not depend on their order, and every device draws the same
as far as it has the same exponential function. What is rarer than 2^-40 times the best token is never drawn. A
vocabulary of more than 2^22 tokens could overflow int64.

Tokens are compared by their distance to the best one, which is not negative: the bits of such floats are in the order
of their values, and a bisection over bits finds a cut without sorting.

A program draws for `ROWS` entries. Everything about an entry is a column `(ROWS, 1)`, beside tiles `(ROWS, BLOCK)`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast

UNIT = tl.constexpr(1099511627776.0)
EVERYTHING = tl.constexpr(0x7F800000)
"""The bits of infinity."""
UNKNOWN = tl.constexpr(0x7FFFFFFF)


@triton.jit
def _column_sum(x):
    return tl.sum(x, 1)[:, None]


@triton.jit
def _best(row, known, size, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return each row's best value, and whether it is finite and nothing of the row is NaN."""
    top = tl.full([ROWS, BLOCK], float("-inf"), tl.float32)
    strange = tl.zeros([ROWS, BLOCK], tl.int32)
    for first in range(0, size, BLOCK):
        place = first + tl.arange(0, BLOCK)[None, :]
        values = cast(tl.load(row + place, mask=known & (place < size), other=float("-inf")), tl.float32)
        strange |= (values != values).to(tl.int32)
        top = tl.where(values > top, values, top)
    best = tl.max(top, 1)[:, None]
    return best, (tl.max(strange, 1)[:, None] == 0) & (tl.abs(best) < float("inf"))


@triton.jit
def _masses(row, place, known, size, best, temperature, sound, most):
    """Return which tokens have a distance `(best - value) / temperature` of at most `most`, in bits, and their masses.

    Of a row that is not sound all tokens are alike.
    """
    inside = known & (place < size)
    values = cast(tl.load(row + place, mask=inside, other=float("-inf")), tl.float32)
    distances = tl.where(sound, (best - values) / temperature, 0.0)
    kept = inside & (distances.to(tl.int32, bitcast=True) <= most)
    return kept, tl.where(kept, (tl.exp(-distances) * UNIT).to(tl.int64), 0)


@triton.jit
def _mass_up_to(row, known, size, best, temperature, sound, most, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mass of the tokens that have a distance of at most `most`, in bits."""
    return _up_to(row, known, size, best, temperature, sound, most, ROWS, BLOCK)[1]


@triton.jit
def _up_to(row, known, size, best, temperature, sound, most, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return how many tokens have a distance of at most `most`, in bits, and their mass."""
    count = tl.zeros([ROWS, BLOCK], tl.int32)
    mass = tl.zeros([ROWS, BLOCK], tl.int64)
    for first in range(0, size, BLOCK):
        place = first + tl.arange(0, BLOCK)[None, :]
        kept, masses = _masses(row, place, known, size, best, temperature, sound, most)
        count += kept.to(tl.int32)
        mass += masses
    return _column_sum(count), _column_sum(mass)


@triton.jit
def _cut(
    row,
    known,
    size,
    best,
    temperature,
    sound,
    most,
    wanted,
    asked,
    BY_MASS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return bits up to which there are the fewest tokens that have `wanted`; up to `most` they have it.

    Tokens at the same distance are kept or cut together. Entries that did not ask keep `most`.
    """
    low = tl.where(asked, -1, most).to(tl.int32)
    low_count = tl.zeros([ROWS, 1], tl.int32)
    high, high_count = most, tl.zeros([ROWS, 1], tl.int32) + UNKNOWN
    searching = (high - low > 1).to(tl.int32)
    while tl.max(tl.max(searching, 1), 0) > 0:
        middle = low + (high - low) // 2
        count, mass = _up_to(row, known, size, best, temperature, sound, middle, ROWS, BLOCK)
        if BY_MASS:
            enough = mass >= wanted
        else:
            enough = count.to(tl.int64) >= wanted
        open_ = searching > 0
        up, down = open_ & (enough == 0), open_ & enough
        low, low_count = tl.where(up, middle, low), tl.where(up, count, low_count)
        high, high_count = tl.where(down, middle, high), tl.where(down, count, high_count)
        searching = ((high - low > 1) & (high_count - low_count > 1)).to(tl.int32)
    return high


@triton.jit
def _truncated(
    row, known, size, best, temperature, sound, top_k, top_p, min_p, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Return the bits of the greatest distance that is still sampled."""
    most = tl.zeros([ROWS, 1], tl.int32) + EVERYTHING
    asked = (top_k > 0) & (top_k < size)
    most = _cut(row, known, size, best, temperature, sound, most, top_k.to(tl.int64), asked, False, ROWS, BLOCK)
    asked = top_p < 1.0
    if tl.max(tl.max(asked.to(tl.int32), 1), 0) > 0:
        total = _mass_up_to(row, known, size, best, temperature, sound, most, ROWS, BLOCK)
        wanted = tl.minimum(tl.ceil(top_p * total.to(tl.float64)).to(tl.int64), total)
        most = _cut(row, known, size, best, temperature, sound, most, wanted, asked, True, ROWS, BLOCK)
    # The best token's distance is 0: min-p 1 leaves it.
    limit = tl.abs(tl.log(tl.where(min_p > 0.0, min_p, 1.0).to(tl.float32))).to(tl.int32, bitcast=True)
    return tl.where(min_p > 0.0, tl.minimum(most, limit), most)


@triton.jit
def _chosen(row, known, size, best, temperature, sound, most, uniform, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the first token up to which there is more than `uniform` of the mass of all that are kept."""
    total = _mass_up_to(row, known, size, best, temperature, sound, most, ROWS, BLOCK)
    target = tl.floor(uniform * total.to(tl.float64)).to(tl.int64)
    lane = tl.arange(0, BLOCK)[None, :]
    before, start = tl.zeros([ROWS, 1], tl.int64), tl.zeros([ROWS, 1], tl.int32)
    for first in range(0, size, BLOCK):
        masses = _masses(row, first + lane, known, size, best, temperature, sound, most)[1]
        behind = before + _column_sum(masses)
        passed = (start == first) & (behind <= target)
        before = tl.where(passed, behind, before)
        start = tl.where(passed, first + BLOCK, start).to(tl.int32)
    place = start + lane
    masses = _masses(row, place, known, size, best, temperature, sound, most)[1]
    above = before + tl.cumsum(masses, 1) > target
    return tl.minimum(tl.min(tl.where(above, place, UNKNOWN), 1), size - 1)


@triton.jit
def draw(
    logits,
    rows,
    numbers,
    out,
    count,
    size,
    stride,
    INDEXED: tl.constexpr,
    TRUNCATED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Draw the tokens of some entries. `numbers (5, count)` is as `core.ops.draw` takes it."""
    entry = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = entry < count
    index = entry
    if INDEXED:
        index = tl.load(rows + entry, mask=there, other=0)
    row, known = logits + (index * stride)[:, None], there[:, None]
    best, sound = _best(row, known, size, ROWS, BLOCK)
    number = (numbers + entry)[:, None]
    temperature = tl.load(number, mask=known, other=1.0).to(tl.float32)
    most = tl.zeros([ROWS, 1], tl.int32) + EVERYTHING
    if TRUNCATED:
        top_k = tl.load(number + count, mask=known, other=0.0)
        top_p = tl.load(number + 2 * count, mask=known, other=1.0)
        min_p = tl.load(number + 3 * count, mask=known, other=0.0)
        most = _truncated(row, known, size, best, temperature, sound, top_k, top_p, min_p, ROWS, BLOCK)
    uniform = tl.load(number + 4 * count, mask=known, other=0.0)
    token = _chosen(row, known, size, best, temperature, sound, most, uniform, ROWS, BLOCK)
    tl.store(out + entry, token.to(tl.int64), mask=there)
