"""Layers in cache groups: what shares a block table or a buffer, and how many requests that makes room for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api.attention import KVLayout
from core.api.kvspecs import KVSpec
from core.engine.managers import managers_for
from core.worker.grouping import MOST_PADDING, best_width, grouped, together
from core.worker.memory import KVDemand

LAYOUT = KVLayout((2, 16, 1, 256), torch.bfloat16)
FULL, SLIDING = KVSpec(), KVSpec("sliding", 512)
SPECS = [FULL, SLIDING, KVSpec("sliding", 64), KVSpec("chunked", 128)]


def pattern(sliding, count, window=512):
    """`count` layers, a full one behind every `sliding` ones with a window."""
    return [(FULL if i % (sliding + 1) == sliding else KVSpec("sliding", window), LAYOUT) for i in range(count)]


@settings(max_examples=200, deadline=None)
@given(specs=st.lists(st.sampled_from(SPECS), min_size=1, max_size=70))
def test_every_layer_has_one_place_and_groups_are_equally_wide(specs):
    found = grouped([(spec, LAYOUT) for spec in specs])
    width, places = len(found.buffers), [place for group in found.groups for place in group.layers]
    assert sorted(places) == list(range(len(specs)))
    for group in found.groups:
        assert 0 < len(group.layers) <= width and {specs[place] for place in group.layers} == {group.spec}
    padding = len(found.groups) * width - len(specs)
    assert padding <= MOST_PADDING * len(specs)
    for other in range(1, len(specs) + 1):  # nobody does with fewer groups
        groups = sum(-(-specs.count(spec) // other) for spec in set(specs))
        assert groups * other - len(specs) > MOST_PADDING * len(specs) or groups >= len(found.groups)


@pytest.mark.parametrize(
    ("layers", "groups", "width"),
    [
        (pattern(5, 26), 7, 4),  # Gemma 3 1B
        (pattern(5, 62, 1024), 5, 13),  # Gemma 3 27B
        (pattern(1, 42, 4096), 2, 21),  # Gemma 2 9B
        (pattern(1, 24, 128), 2, 12),  # gpt-oss 20B
        (pattern(0, 32), 1, 32),
    ],
)
def test_known_shapes(layers, groups, width):
    found = grouped(layers)
    assert (len(found.groups), len(found.buffers)) == (groups, width)


def test_layers_whose_blocks_differ_in_size_stay_together_and_the_start_table_says_so():
    layers = [(FULL, LAYOUT), (SLIDING, replace(LAYOUT, block_shape=(2, 16, 1, 128)))]
    found = grouped(layers)
    assert found.specs == (FULL,) and found.bytes_per_block == sum(layout.bytes_per_block for _, layout in layers)
    assert found.describe() == "one block table: the blocks of its layers differ in size"


def test_one_table_keeps_what_any_layer_reads():
    windows = [KVSpec("sliding", 8), KVSpec("sliding", 32)]
    assert together([(spec, LAYOUT) for spec in windows]).specs == (KVSpec("sliding", 32),)
    assert together([(spec, LAYOUT) for spec in SPECS]).specs == (FULL,)
    assert best_width([3, 3]) == 3


@pytest.mark.parametrize(
    ("layers", "length", "least"),
    [(pattern(5, 26), 8192, 4.6), (pattern(5, 26), 2048, 2.4), (pattern(1, 24, 128), 8192, 1.9)],
)
def test_requests_that_fit_beside_one_table(layers, length, least):
    """The arithmetic of the start table, in 8 GiB and blocks of 16 tokens."""
    rooms = []
    for found in (together(layers), grouped(layers)):
        held = managers_for(found.specs, 16).most_blocks(length // 16, 1)
        demand = KVDemand(found.bytes_per_block, 16, length, 10_000, running=held, decoding=held)
        rooms.append((2**33 // found.bytes_per_block - 1) // (demand.least_blocks - 1))
    assert rooms[1] >= least * rooms[0] > 0
