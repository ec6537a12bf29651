"""Rows that share leading blocks, against attention by definition in float64, and against rows with copies of these."""

import pytest
import torch
from core_plugin_kernels_triton.attention import few

from .test_triton_attention import SMALL, attend, definition, site_of, step_of


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr("core_plugin_kernels_triton.attention.tiles.tiles", lambda device: SMALL)


@pytest.fixture
def programs(monkeypatch):
    """Count the programs that go through keys."""
    own, counts = few.attend_keys, [0]

    def counted(*given):
        counts[0] += 1
        return own(*given)

    monkeypatch.setattr(few, "attend_keys", counted)
    return counts


def sharing(rows, prefixes, site, size=4, *, same=True, **options):
    """Return a step whose row r begins with the first `prefixes[r]` tokens of row 0.

    Args:
        same: In the same blocks, and what the row had instead is no number; else in blocks of its own.
    """
    step = step_of(rows, site, size, **options)
    tables = step.batch.block_tables
    for row, prefix in enumerate(prefixes[1:], 1):
        for part in (0, 1):
            step.histories[row][part][:prefix] = step.histories[0][part][:prefix]
        columns = slice(0, prefix // size)
        if same:
            step.kv[tables[row, columns].long()] = torch.nan
            tables[row, columns] = tables[0, columns]
        else:
            step.kv[tables[row, columns].long()] = step.kv[tables[0, columns].long()]
    return step


ROWS = [(50, 1), (40, 1), (33, 1), (63, 1), (36, 1), (20, 1), (48, 1)]
SHARED = [0, 36, 32, 48, 16, 16, 32]
"""Splits have 16 tokens. Of heads in threes, five rows are a group, of which the first has three full splits."""


@pytest.mark.covers("ATTN-05")
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"sinks": True},
        pytest.param({"softcap": 1.5}, marks=pytest.mark.exhaustive),
        pytest.param({"slopes": (0.5, 0.3, 0.2) * 2}, marks=pytest.mark.exhaustive),
    ],
    ids=lambda extra: "-".join(extra) or "plain",
)
def test_shared_splits_are_computed_once(extra, programs):
    site = site_of(**extra)
    sinks = torch.linspace(-2, 3, site.num_heads) if site.sinks else None
    step = sharing(ROWS, SHARED, site)
    found = attend(step, site, sinks=sinks)
    torch.testing.assert_close(found.double(), definition(step, site, sinks), rtol=0, atol=2e-5)
    shared, programs[0] = programs[0], 0
    copies = attend(sharing(ROWS, SHARED, site, same=False), site, sinks=sinks)
    assert torch.equal(found, copies)
    # In the first group rows share 2, 2, 3 and 1 splits, of the two rows behind one shares 1; for two kv heads.
    assert programs[0] - shared == 2 * (2 + 2 + 3 + 1 + 1)


def test_rows_of_several_tokens_and_none_take_part_in_nothing():
    site = site_of()
    rows = [(50, 1), (40, 2), (33, 0), (63, 1), (0, 19), (36, 1), (40, 3), (40, 1)]
    step = sharing(rows, [0, 32, 32, 48, 0, 16, 32, 32], site)
    torch.testing.assert_close(attend(step, site).double(), definition(step, site), rtol=0, atol=2e-5)
    rows[0] = (50, 4)
    step = sharing(rows, [0, 32, 32, 48, 0, 16, 32, 32], site)
    torch.testing.assert_close(attend(step, site).double(), definition(step, site), rtol=0, atol=2e-5)


def test_contexts_whose_splits_have_other_sizes_stay_apart(programs):
    """Beyond four splits of 16 tokens a split has 32: neighbours with less share nothing with it."""
    site = site_of(1, 2)
    step = sharing([(100, 1), (60, 1), (90, 1)], [0, 48, 80], site)
    torch.testing.assert_close(attend(step, site).double(), definition(step, site), rtol=0, atol=2e-5)
    assert programs[0] == 4 + 4 + (3 - 2)


def test_larger_tiles_have_lanes_for_more_rows(programs, monkeypatch):
    """32 lanes: all seven rows are one group, of which the sixth and seventh share 1 and 2 splits with the first."""
    monkeypatch.setitem(SMALL, "few_1024", {**SMALL["few_1024"], "m": 32})
    site = site_of(1)
    step = sharing(ROWS, SHARED, site)
    torch.testing.assert_close(attend(step, site).double(), definition(step, site), rtol=0, atol=2e-5)
    splits = sum(-(-(context + 1) // 16) for context, _ in ROWS)
    assert programs[0] == splits - (2 + 2 + 3 + 1 + 1 + 2)


def test_a_table_that_asks_for_none_together(programs, monkeypatch):
    site = site_of(1, 2)
    step = sharing([(50, 1), (40, 1)], [0, 32], site)
    due = attend(step, site)
    assert programs[0] == 4 + 3 - 2
    monkeypatch.setitem(SMALL, "joint", 1)
    assert torch.equal(attend(step, site), due) and programs[0] == 4 + 3 - 2 + 4 + 3


def test_windows_read_nothing_before_them():
    site = site_of(window=20)
    step = step_of(ROWS, site)
    torch.testing.assert_close(attend(step, site).double(), definition(step, site), rtol=0, atol=2e-5)


def test_a_group_without_free_lanes(programs):
    """Of sixteen heads that share keys a tile has one row."""
    site = site_of(1, 16)
    step = sharing([(50, 1), (40, 1)], [0, 32], site)
    torch.testing.assert_close(attend(step, site).double(), definition(step, site), rtol=0, atol=2e-5)
    assert programs[0] == 4 + 3


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_shared_splits_of_short_types(kv_dtype):
    site = site_of(2, 2, 16)
    options = {"dtype": torch.bfloat16, "kv_dtype": kv_dtype}
    rows, shared = [(50, 1), (40, 1), (40, 1)], [0, 32, 36]
    found = attend(sharing(rows, shared, site, same=False, **options), site, kv_dtype=kv_dtype)
    step = sharing(rows, shared, site, same=False, **options)
    step.batch.block_tables[1:, :8] = step.batch.block_tables[0, :8]
    assert torch.equal(attend(step, site, kv_dtype=kv_dtype), found)
