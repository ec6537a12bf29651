"""Compressed entries: what queries see by definition, in tiles, and by plans that stay."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from core_plugin_torch_sdpa import compressed
from core_plugin_torch_sdpa.backend import TorchSdpaBackend

from core.api.attention import AttentionContext, BatchView, CompressedSite, PickSite
from core.api.steps import StepShape
from core_testing.conformance.tools.plain import PlainAttention

CPU = torch.device("cpu")
SIZE, RATIO, PICKS = 8, 4, 3
SITES = (CompressedSite(0, 3, 10, 0.4, RATIO, PICKS), CompressedSite(1, 3, 10, 0.4, SIZE))
PICKER = PickSite(2, 18, 7, 0.4, PICKS, RATIO)
"""So many heads that no score is 0: which of equal ones is seen is not said."""


class Side:
    """One backend with caches of its own."""

    def __init__(self, kind, fill, kv_dtype=torch.float32):
        self.backend = kind(AttentionContext(CPU, torch.float32, kv_dtype, SIZE))
        self.layers = [self.backend.compressed(site) for site in SITES]
        self.picker = self.backend.picker(PICKER)
        layouts = [*(self.backend.compressed_layout(site) for site in SITES), self.backend.picker_layout(PICKER)]
        self.caches = [torch.full((40, *one.block_shape), fill, dtype=one.dtype) for one in layouts]

    def step(self, batch, q, entries, index, plan=None):
        plan = self.backend.plan(batch) if plan is None else plan
        query, key, weights = index
        self.picker.write(key, self.caches[2], plan)
        picked = self.picker.forward(query, weights, self.caches[2], plan)
        found = []
        for layer, cache, chosen in zip(self.layers, self.caches, (picked, None), strict=False):
            layer.write(entries, cache, plan)
            found += layer.forward(q, cache, plan, chosen)
        return picked, found


class Rows:
    """Rows of so many tokens, in blocks of their own."""

    def __init__(self, count):
        self.rng = torch.Generator().manual_seed(7)
        self.tables = (torch.randperm(39, generator=self.rng) + 1)[: count * 8].view(count, 8).int()
        self.lengths = [0] * count

    def batch(self, counts):
        work = [(row, self.lengths[row], new) for row, new in enumerate(counts) if new]
        slots = []
        for row, start, new in work:
            self.lengths[row] = start + new
            at = torch.arange(start, start + new)
            slots.append(self.tables[row, at // SIZE].long() * SIZE + at % SIZE)
        new, ends = [new for _, _, new in work], [start + new for _, start, new in work]
        starts = np.concatenate([[0], np.cumsum(new)]).astype(np.int32)
        table = self.tables[[row for row, _, _ in work]]
        return BatchView(starts, np.array(ends, np.int32), table, torch.cat(slots), max(new), max(ends))

    def inputs(self, batch):
        tokens = len(batch.slots)
        sizes = ((3, 10), (10,), (18, 7), (7,), (18,))
        q, entries, *index = (torch.randn(tokens, *one, generator=self.rng) for one in sizes)
        return q, entries, index


def same(found, due):
    (mine, parts), (theirs, expected) = found, due
    if mine is not None:
        assert [set(one.tolist()) for one in mine] == [set(one.tolist()) for one in theirs]
    for one, other in zip(parts, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("most", [2**24, 40])
def test_prompts_and_tokens_are_as_defined(monkeypatch, most):
    """However few scores there may be at once."""
    monkeypatch.setattr(compressed, "MOST_SCORES", most)
    side, plain, rows = Side(TorchSdpaBackend, 1e4), Side(PlainAttention, 0.0), Rows(3)
    for counts in ((3, 21, 40), (1, 1, 1), (0, 1, 5), (9, 1, 1), (1, 1, 1)):
        batch = rows.batch(counts)
        given = rows.inputs(batch)
        same(side.step(batch, *given), plain.step(batch, *given))


def test_a_plan_that_stays_gives_the_same():
    side, plain, rows = Side(TorchSdpaBackend, 1e4), Side(PlainAttention, 0.0), Rows(2)
    batch = rows.batch((30, 17))
    given = rows.inputs(batch)
    for one in (side, plain):
        one.step(batch, *given)
    plan = side.backend.fixed_plan(StepShape(num_tokens=2, num_rows=2, max_query_len=1, max_seq_len=8 * SIZE))
    for _ in range(9):
        batch = rows.batch((1, 1))
        given = rows.inputs(batch)
        side.backend.refresh(plan, batch)
        same(side.step(batch, *given, plan), plain.step(batch, *given))


def test_none_is_said_of_rows_that_see_all():
    side, rows = Side(TorchSdpaBackend, 0.0), Rows(1)
    batch = rows.batch((PICKS * RATIO + RATIO - 1,))
    assert side.step(batch, *rows.inputs(batch))[0] is None
    batch = rows.batch((1,))
    assert side.step(batch, *rows.inputs(batch))[0].tolist() != [[-1] * PICKS]


@pytest.mark.parametrize(("kv_dtype", "bytes_each"), [("float32", 4), ("bfloat16", 2), ("float8_e4m3fn", 1)])
def test_a_block_holds_an_entry_for_so_many_tokens(kv_dtype, bytes_each):
    backend = TorchSdpaBackend(AttentionContext(CPU, torch.float32, getattr(torch, kv_dtype), SIZE))
    assert backend.compressed_layout(SITES[0]).bytes_per_block == SIZE // RATIO * 10 * bytes_each
    assert backend.picker_layout(PICKER).bytes_per_block == SIZE // RATIO * 7 * bytes_each


def test_blocks_that_hold_no_whole_entries_are_refused():
    backend = TorchSdpaBackend(AttentionContext(CPU, torch.float32, torch.float32, SIZE))
    with pytest.raises(ValueError, match="a block of 8 tokens has no whole number of entries that stand for 3"):
        backend.compressed_layout(CompressedSite(0, 1, 4, 1.0, 3))
