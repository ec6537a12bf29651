"""Cache groups in the engine: what gives blocks back, what a cached prefix needs, and who fits beside whom."""

from __future__ import annotations

import numpy as np
import pytest

from core.api.kvspecs import KVSpec
from core.engine.managers import managers_for
from core_testing.arithmetic import generate

GEMMA = (0, *(512,) * 6)
"""The seven groups of Gemma 3 1B, of four layers each; one table holds 26 layers."""


def prompt(length, seed=0):
    return np.random.default_rng(seed).integers(0, 97, length).tolist()


@pytest.mark.parametrize("windows", [(0,), (0, 6), (6, 0, 6), (6,), (0, 6, 9, 6, 6, 9, 6)])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_groups_change_no_text(harness, windows, depth):
    engine = harness(blocks=1 + 40 * len(windows), windows=windows, depth=depth, max_chunk=16)
    given = {handle: (prompt(20 + 7 * handle, handle // 2), 12) for handle in range(4)}
    for handle, (text, count) in given.items():
        engine.add(handle, text, max_tokens=count)
    assert engine.run() == {handle: generate(text, count, 97, windows) for handle, (text, count) in given.items()}
    assert (engine.scheduler.blocks_freed_early > 0) is any(windows)


def test_a_window_gives_its_blocks_back_although_another_layer_keeps_all(harness):
    engine = harness(blocks=100, windows=(0, 8), max_len=64, depth=0)
    engine.add(0, prompt(40), max_tokens=20)
    while len(engine.outputs[0]) < 19:
        engine.advance()
    full, sliding = (np.count_nonzero(table[0]) for table in engine.rows.tables)
    assert full == -(-(40 + 19 - 1) // 4) and sliding <= 3
    assert engine.scheduler.blocks_freed_early == full - sliding


def test_what_a_window_gave_back_is_found_until_somebody_takes_it(harness):
    """The same prompt again starts behind the same columns: only those in the window are looked for."""
    engine = harness(blocks=60, windows=(0, 8), max_len=64)
    engine.add(0, prompt(41), max_tokens=4)
    engine.run()
    engine.add(1, prompt(41), max_tokens=4)
    assert engine.run()[1] == engine.outputs[0]
    assert engine.cached[1] == 40
    assert engine.pool.used == 0


@pytest.mark.parametrize(("lost", "cached"), [((1, 2), 40), ((1, 8), 32), ((1, 9), 36), ((0, 3), 12)])
def test_a_prefix_needs_of_every_group_what_the_next_token_reads(harness, lost, cached):
    """Ten columns are cached; the window reads the last two of them. `lost` is the group and the column that is not."""
    engine = harness(blocks=60, windows=(0, 8), max_len=64)
    engine.add(0, prompt(41), max_tokens=2)
    hashes = list(engine.scheduler.requests[0].hashes)
    engine.run()
    group, column = lost
    block = engine.pool.lookup(hashes[column] + engine.cache.suffixes[group])
    assert block is not None
    engine.pool.forget(block)
    engine.add(1, prompt(41), max_tokens=2)
    assert engine.run()[1] == engine.outputs[0]
    assert engine.cached[1] == cached


@pytest.mark.parametrize(
    ("windows", "blocks", "longest"),
    [((0,), 8, 32), ((0,), 100, 64), ((0, 0), 9, 16), ((0, 8), 14, 36), ((8,), 6, 64), ((8,), 3, 12)],
)
def test_the_longest_request_is_what_the_blocks_of_all_groups_can_hold(harness, windows, blocks, longest):
    """Blocks of 4 tokens, steps of 8; a window of 8 gives back what the next token does not read."""
    engine = harness(blocks=blocks + 1, windows=windows, max_chunk=8, max_len=64)
    assert (engine.pool.total, engine.scheduler.longest) == (blocks, longest)


def test_a_request_that_fits_thanks_to_its_windows_runs(harness):
    """24 columns of two groups are more than the pool has; with a window and chunks they never are there at once."""
    fitting = harness(blocks=37, windows=(0, 8), max_chunk=8, max_len=96)
    fitting.add(0, prompt(80), max_tokens=16)
    assert fitting.run()[0] == generate(prompt(80), 16, 97, (0, 8))
    wide = harness(blocks=37, windows=(0, 8), max_chunk=96, budget=96, max_len=96)
    with pytest.raises(ValueError, match="may need 48 KV blocks, the whole cache has 36"):
        wide.add(0, prompt(80), max_tokens=16)
    assert wide.scheduler.longest < 96 <= fitting.scheduler.longest


@pytest.mark.parametrize("columns", [0, 1, 7, 512])
def test_the_most_that_a_row_holds(columns):
    managers = managers_for([KVSpec(), KVSpec("sliding", 512), KVSpec("chunked", 64)], 16)
    held = managers.most_blocks(512, 128)
    sliding, chunked = min(columns, (512 + 128) // 16 + 1), min(columns, (64 + 128) // 16 + 1)
    assert columns <= held[columns] <= columns + sliding + chunked
    assert (np.diff(held) >= 0).all()


@pytest.mark.parametrize(("windows", "layers"), [((0,), 26), (GEMMA, 4)])
def test_requests_of_8k_tokens_that_run_at_once(harness, windows, layers):
    """Gemma 3 1B with memory for three requests in one table: seven groups hold four times as many."""
    memory = (3 * (8256 // 16) + 26) * 26  # blocks of single layers
    engine = harness(
        blocks=memory // layers,
        block_size=16,
        windows=windows,
        max_seqs=32,
        budget=2048,
        max_chunk=2048,
        max_len=8256,
        prefix=False,
        depth=0,
    )
    for handle in range(16):
        engine.add(handle, prompt(8150, handle), max_tokens=100)
    together = 0
    while not engine.finished:
        engine.advance()
        rows = list(engine.scheduler.running)
        together = max(together, int((engine.rows.computed[rows] >= 8150).sum()))
    assert together == 3 if windows == (0,) else together >= 12
