"""MPNet's table of distances against transformers' own reading of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from core_plugin_bert.distances import Distances, buckets

from core.api.layers import Heads


@pytest.mark.parametrize("length", [1, 2, 9, 130, 500])
def test_rows_of_the_table_are_transformers_own(length):
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    distance = torch.arange(1 - length, length)
    assert torch.equal(buckets(length, 32), MPNetEncoder.relative_position_bucket(distance, num_buckets=32))


@pytest.mark.parametrize(("share", "own"), [(Heads(4, 4), slice(0, 4)), (Heads(2, 2, 2), slice(2, 4))])
def test_each_pair_gets_what_its_distance_adds(share, own):
    table = torch.randn(32, 4)
    config = SimpleNamespace(distance_rows=32, num_heads=4)
    layers = {"embedding": lambda *sizes, shard: lambda ids: table[ids], "heads": lambda *heads: share}
    found, rows = Distances(config, SimpleNamespace(**layers))(40, torch.device("cpu")), buckets(40, 32)
    assert found.shape == (share.heads, 40, 40)
    for query, key in ((0, 0), (0, 39), (39, 0), (17, 30), (30, 17)):
        assert torch.equal(found[:, query, key], table[rows[key - query + 39], own])
