"""Division of a step into groups and tiles, and the manifest."""

import subprocess
import sys

import numpy as np
import pytest
from core_plugin_torch_sdpa import partition
from core_plugin_torch_sdpa.manifest import TORCH_SDPA
from core_plugin_torch_sdpa.partition import decode_groups, prefill_tiles
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api.descriptors import AttentionRequest


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40), st.sampled_from([None, 1, 100]))
def test_every_row_is_in_one_group_that_covers_it(lengths, window):
    seq_lens, rows = np.array(lengths, dtype=np.int32), np.arange(len(lengths))
    groups = decode_groups(seq_lens, rows, window, 16)
    assert sorted(row for group in groups for row in group.rows) == list(rows)
    for group in groups:
        assert list(group.rows) == sorted(group.rows)
        lens = seq_lens[group.rows]
        assert np.all((group.first_blocks + group.num_blocks) * 16 >= lens)
        if window is not None:
            assert np.all(group.first_blocks * 16 <= np.maximum(lens - window, 0))
        assert len(group.rows) == 1 or len(group.rows) * group.num_blocks * 16 <= partition.GATHER_TOKENS


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40))
def test_padding_is_bounded(lengths):
    seq_lens = np.array(lengths, dtype=np.int32)
    for group in decode_groups(seq_lens, np.arange(len(lengths)), None, 16):
        own = -(-seq_lens[group.rows] // 16)
        assert np.all(own >= group.num_blocks // 2 - partition.SLACK_BLOCKS)


@pytest.mark.covers("ATTN-03")
@settings(derandomize=True, deadline=None)
@given(st.integers(0, 3000), st.integers(1, 2000), st.sampled_from([None, 1, 64, 4096]))
def test_tiles_cover_the_queries_and_their_keys(context, queries, window):
    tiles = prefill_tiles(0, (7, 7 + queries), context + queries, window)
    assert [tile.tokens[0] for tile in tiles[1:]] == [tile.tokens[1] for tile in tiles[:-1]]
    assert (tiles[0].tokens[0], tiles[-1].tokens[1]) == (7, 7 + queries)
    for tile in tiles:
        last = tile.first_query + tile.tokens[1] - tile.tokens[0] - 1
        wanted = 0 if window is None else max(0, tile.first_query - window + 1)
        assert tile.keys == (wanted, last + 1)
        assert tile.first_query == context + tile.tokens[0] - 7


@pytest.mark.covers("ATTN-03")
def test_refusals_name_what_is_supported():
    request = AttentionRequest(
        device_type="abacus",
        dtype="float64",
        kv_dtype="fp8",
        head_dim=64,
        num_heads=9,
        num_kv_heads=3,
        block_size=16,
        features=frozenset({"value_dim", "softcap"}),
    )
    reasons = request.check(TORCH_SDPA).reasons
    assert len(reasons) == 4
    assert any("bfloat16, float16, float32" in reason for reason in reasons)
    assert any("lacks value_dim" in reason for reason in reasons)


def test_the_manifest_is_torch_free():
    code = "import sys, core_plugin_torch_sdpa.manifest; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
