"""Rows of a few tokens behind a context are rows of one token each; all others stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from core_plugin_cpu.native.verify import FEW, apart

from core.api.attention import BatchView


def batch(counts, contexts):
    starts = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=starts[1:])
    lengths = np.array(contexts, np.int32) + np.array(counts, np.int32)
    tables = torch.arange(len(counts) * 3, dtype=torch.int32).view(len(counts), 3)
    slots = torch.arange(int(starts[-1]))
    return BatchView(starts, lengths, tables, slots, max(counts), int(lengths.max()))


def queries(view):
    """Return what each token of a batch sees: its row's first block, and how many tokens."""
    seen = []
    for row, length in enumerate(view.seq_lens.tolist()):
        count = int(view.query_starts[row + 1] - view.query_starts[row])
        seen += [(view.block_tables[row].tolist(), length - count + 1 + i) for i in range(count)]
    return seen


@pytest.mark.parametrize(
    ("counts", "contexts", "rows"),
    [
        ([5], [20], 5),
        ([1, 5, 1, 3], [7, 20, 30, 9], 10),
        ([40, 2, 1], [0, 6, 8], 4),
        ([FEW, FEW + 1], [9, 9], FEW + 1),
    ],
)
def test_each_token_sees_what_it_saw(counts, contexts, rows):
    view = batch(counts, contexts)
    found = apart(view)
    assert queries(found) == queries(view)
    assert len(found.seq_lens) == len(found.block_tables) == rows and found.max_query_len == max(
        np.diff(found.query_starts).tolist()
    )
    assert found.query_starts.dtype == found.seq_lens.dtype == np.int32 and found.slots is view.slots


@pytest.mark.parametrize(("counts", "contexts"), [([1, 1], [4, 5]), ([3, 8], [0, 0]), ([90, 1], [4, 5])])
def test_others_are_left_as_they_are(counts, contexts):
    view = batch(counts, contexts)
    assert apart(view) is view
