"""MPNet's table of distances against transformers' own reading of it."""

from __future__ import annotations

import pytest
import torch
from core_plugin_bert.distances import Distances, buckets


@pytest.mark.parametrize("length", [1, 2, 9, 130, 500])
def test_rows_of_the_table_are_transformers_own(length):
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    distance = torch.arange(1 - length, length)
    assert torch.equal(buckets(length, 32), MPNetEncoder.relative_position_bucket(distance, num_buckets=32))


def test_each_pair_gets_what_its_distance_adds():
    table = torch.randn(32, 3)
    bias = Distances.__new__(Distances)
    bias.rows, bias.table = 32, lambda ids: table[ids]
    found, rows = bias(40), buckets(40, 32)
    assert found.shape == (3, 40, 40)
    for query, key in ((0, 0), (0, 39), (39, 0), (17, 30), (30, 17)):
        assert torch.equal(found[:, query, key], table[rows[key - query + 39]])
