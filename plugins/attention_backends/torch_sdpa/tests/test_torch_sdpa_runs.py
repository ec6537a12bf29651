"""How the prompts of a step come together for attention without a cache."""

from __future__ import annotations

import numpy as np
import pytest
from core_plugin_torch_sdpa.groups import Run, runs, similar


def places(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@pytest.mark.parametrize(
    ("lengths", "rows", "found"),
    [
        ([5], [0], [Run(0, 5, 5)]),
        ([5, 5, 5], [0, 1, 2], [Run(0, 15, 5)]),
        ([5, 5, 4, 4, 5], [0, 1, 2, 3, 4], [Run(0, 10, 5), Run(10, 18, 4), Run(18, 23, 5)]),
        # Neighbours in the list that are none in the step stay apart.
        ([5, 9, 5], [0, 2], [Run(0, 5, 5), Run(14, 19, 5)]),
        ([5, 9], [], []),
    ],
)
def test_neighbours_of_one_length_are_a_batch(lengths, rows, found):
    assert runs(places(lengths), np.array(rows, np.int64)) == found


def test_groups_keep_their_bound():
    lengths = np.random.default_rng(0).integers(1, 33, size=200)
    groups = similar(lengths, np.arange(200))
    assert sorted(np.concatenate(groups).tolist()) == list(range(200))
    for rows in groups:
        assert len(rows) * lengths[rows].max() <= 1.25 * lengths[rows].sum()
