"""Shared prefixes: a split of the context that neighbouring rows of a step have in the same blocks is read once.

A tile of queries has lanes for several rows of one token, of which a row alone fills one. The rows of a step are taken
in groups of so many (`TOGETHER`); where the whole split of a row is in the blocks of the first row of its group, the
first row's program computes it in lanes that are free there, and leaves a part for each row, as the row's own program
would have. How splits are put together does not change, nor does any number: a lane gives the same whatever is beside
it. So this holds in batches, too, whose rows have to give what they give alone.

It pays for all that is shared, as it adds no product: `tokens` in splits that `rows` share are read `rows / TOGETHER`
times instead of `rows` times. What it costs, shared or not, is bounded: a program reads 4 bytes of each row of its
group for each block of its split, where the block's keys and values are `2 * block_size * head_dim` numbers. The kernel
reads the tables itself: the host looks at nothing, and captured graphs have it as well.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def split_size(span, SPLIT: tl.constexpr, SPLITS: tl.constexpr):
    """Return the keys of each split of so many: a multiple of `SPLIT` that makes no more than `SPLITS`."""
    return (span + SPLIT * SPLITS - 1) // (SPLIT * SPLITS) * SPLIT


@triton.jit
def joined(
    tables,
    starts,
    lengths,
    rows,
    leader,
    others,
    split,
    table_row,
    BLOCK_SIZE: tl.constexpr,
    SPLIT: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Return which rows `others (M,)` have split number `split` of their context where the row `leader` has its own.

    True only for rows of one token, of splits that are full, and where there is a leader of that kind. Numbers of
    other rows than those of the step are allowed.
    """
    COLUMNS: tl.constexpr = 16
    real = others < rows
    lead_length = tl.load(lengths + leader)
    size = split_size(lead_length, SPLIT, SPLITS)
    end = (split + 1) * size
    length = tl.load(lengths + others, mask=real, other=0)
    count = tl.load(starts + others + 1, mask=real, other=0) - tl.load(starts + others, mask=real, other=0)
    lead_count = tl.load(starts + leader + 1) - tl.load(starts + leader)
    # One condition of the leader's for all lanes: the interpreter widens a mask that meets a single truth value.
    fits = tl.where(lead_count == 1, lead_length, 0) + others * 0
    same = real & (count == 1) & (end <= length) & (end <= fits)
    same = same & (split_size(length, SPLIT, SPLITS) == size)
    theirs = tables + others.to(tl.int64) * table_row
    own = tables + leader.to(tl.int64) * table_row
    begin = split * size // BLOCK_SIZE
    stop = tl.where(end <= lead_length, (end + BLOCK_SIZE - 1) // BLOCK_SIZE, begin)
    for start in range(begin, stop, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        live = column < stop
        wanted = tl.load(own + column, mask=live, other=0)
        found = tl.load(theirs[:, None] + column[None, :], mask=same[:, None] & live[None, :], other=0)
        differs = live[None, :] & (found != wanted[None, :])
        same = same & (tl.sum(differs.to(tl.int32), 1) == 0)
    return same
