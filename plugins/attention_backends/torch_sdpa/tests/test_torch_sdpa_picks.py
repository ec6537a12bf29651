"""Picked positions: those of the best scores by definition, however a sequence is cut and wherever it lies."""

import numpy as np
import pytest
import torch
from core_plugin_torch_sdpa import latent, picks
from core_plugin_torch_sdpa.backend import TorchSdpaBackend
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api.attention import AttentionContext, BatchView, LatentSite, PickSite
from core.api.steps import StepShape

CPU = torch.device("cpu")
PICKS, HEADS = 8, 18
"""So many heads that no score is 0, the sum of nothing: which of equal ones is seen is not said."""


class Bench:
    """A picker and a latent layer with one plan, sequences of random tokens, and what is due by definition."""

    def __init__(self, lengths, block_size=4, *, dtype=torch.float64, kv_dtype=None, most=PICKS, seed=0):
        rng = torch.Generator().manual_seed(seed)

        def made(*shape):
            return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)

        self.site = LatentSite(0, num_heads=3, latent_dim=12, rope_dim=4, key_dim=6, value_dim=5, scale=0.3, picks=most)
        self.picks, self.size = PickSite(1, num_heads=HEADS, key_dim=7, scale=0.4, picks=most), block_size
        self.backend = TorchSdpaBackend(AttentionContext(CPU, dtype, kv_dtype or dtype, block_size))
        self.layer, self.picker = self.backend.latent(self.site), self.backend.picker(self.picks)
        self.key, self.value = made(3, 6, 12), made(3, 12, 5)
        self.layer.use_up(self.key, self.value)
        sizes = ((3, 6), (3, 4), (12,), (4,), (HEADS, 7), (7,), (HEADS,))
        self.rows = [[made(length, *one) for one in sizes] for length in lengths]
        columns = -(-max(lengths) // block_size)
        blocks = torch.randperm(len(lengths) * columns, generator=rng).int() + 1
        self.tables = blocks.view(len(lengths), columns)
        layouts = (self.backend.latent_layout(self.site), self.backend.picker_layout(self.picks))
        self.caches = [torch.zeros((len(blocks) + 1, *one.block_shape), dtype=one.dtype) for one in layouts]
        if layouts[0].dtype.is_floating_point:
            # What no token owns is never seen, whatever its scores would be.
            self.caches[0].fill_(50.0)
            self.caches[1].fill_(torch.finfo(layouts[1].dtype).max / 4)
        self.done = [0] * len(lengths)

    def batch(self, counts):
        """Take further tokens of each row; return the batch, and `(row, first position, count)` of each."""
        work = [(row, self.done[row], count) for row, count in enumerate(counts) if count]
        slots = []
        for row, start, count in work:
            self.done[row] = start + count
            positions = torch.arange(start, start + count)
            slots.append(self.tables[row, positions // self.size].long() * self.size + positions % self.size)
        new, ends = [count for _, _, count in work], [start + count for _, start, count in work]
        starts = np.concatenate([[0], np.cumsum(new)]).astype(np.int32)
        table = self.tables[[row for row, _, _ in work]]
        return BatchView(starts, np.array(ends, np.int32), table, torch.cat(slots), max(new), max(ends)), work

    def step(self, counts, fixed=None):
        """Run further tokens of each row; return what was picked (None: all), and each row's attention.

        Args:
            fixed: A plan to refresh for the step.
        """
        batch, work = self.batch(counts)
        q, q_rope, kept, rope_key, index_q, index_key, weights = (
            torch.cat([self.rows[row][part][start : start + count] for row, start, count in work]) for part in range(7)
        )
        if fixed is not None:
            self.backend.refresh(fixed, batch)
        plan = fixed or self.backend.plan(batch)
        self.picker.write(index_key, self.caches[1], plan)
        picked = self.picker.forward(index_q, weights.float(), self.caches[1], plan)
        self.layer.write(kept, rope_key, self.caches[0], plan)
        if picked is None:
            out = self.layer.forward(q, q_rope, self.caches[0], plan)
        else:
            assert (picked.shape, picked.dtype) == ((len(q), self.site.picks), torch.int32)
            out = self.layer.forward_picked(q, q_rope, self.caches[0], plan, picked)
        new = [count for _, _, count in work]
        return None if picked is None else picked.split(new), out.split(new)

    def seen(self, row, position):
        """Return the positions that a query sees by definition, as a set."""
        q, keys, weights = self.rows[row][4][position], self.rows[row][5][: position + 1], self.rows[row][6][position]
        products = torch.relu(torch.einsum("hd,pd->hp", q.double(), keys.double()) * self.picks.scale)
        scores = torch.einsum("h,hp->p", weights.float().double(), products)
        return set(scores.argsort(descending=True)[: self.site.picks].tolist())

    def due(self, row, position):
        """Return what a query's attention is by definition, `(heads * value_dim,)` float64."""
        q, q_rope, kept, rope_key = (part.double() for part in self.rows[row][:4])
        seen = sorted(self.seen(row, position))
        heads = []
        for head in range(3):
            keys = torch.cat((kept[seen] @ self.key[head].double().T, rope_key[seen]), dim=1)
            scores = keys @ torch.cat((q[position, head], q_rope[position, head])) * self.site.scale
            heads.append(scores.softmax(0) @ (kept[seen] @ self.value[head].double()))
        return torch.cat(heads)

    def check(self, counts, fixed=None):
        """Run a step and compare everything."""
        before, rows = list(self.done), [row for row, count in enumerate(counts) if count]
        picked, out = self.step(counts, fixed)
        assert picked is not None or max(self.done[row] for row in rows) <= self.site.picks
        for place, row in enumerate(rows):
            for at, position in enumerate(range(before[row], self.done[row])):
                torch.testing.assert_close(out[place][at], self.due(row, position), rtol=1e-9, atol=1e-9)
                if picked is not None:
                    found = [one for one in picked[place][at].tolist() if one != picks.NONE]
                    assert len(found) == len(set(found)) and set(found) == self.seen(row, position)


@pytest.fixture(params=["absorbed", "expanded"])
def form(request, monkeypatch):
    monkeypatch.setattr(latent, "EXPANDED_FROM", 10**6 if request.param == "absorbed" else 2)


@pytest.mark.covers("ATTN-10")
def test_a_query_sees_the_positions_with_the_best_scores(form):
    bench = Bench((70, 30, 1, 5, 9))
    bench.check((67, 1, 1, 5, 8))
    bench.check((1, 28, 0, 0, 1))
    bench.check((1, 1, 0, 0, 0))


@pytest.mark.covers("ATTN-10")
@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    pieces=st.lists(
        st.lists(st.sampled_from([0, 1, 1, 3, 4, 7, 8, 9, 33]), min_size=3, max_size=3), min_size=1, max_size=4
    ),
    block_size=st.sampled_from([1, 4, 16]),
    most=st.sampled_from([1, 8, 21]),
    seed=st.integers(0, 99),
)
def test_any_pieces_of_any_rows_equal_the_definition(pieces, block_size, most, seed):
    steps = [counts for counts in pieces if any(counts)]
    if steps:
        bench = Bench([max(1, sum(row)) for row in zip(*steps)], block_size, most=most, seed=seed)
        for counts in steps:
            bench.check(counts)


@pytest.mark.covers("ATTN-10")
def test_rows_that_are_no_longer_see_everything():
    bench = Bench((20, 12), most=20)
    picked, _ = bench.step((19, 12))
    assert picked is None
    whole = Bench((20, 12), most=10**6)
    assert whole.step((19, 12))[0] is None
    for some, all_of_it in zip(bench.step((1, 0))[1], whole.step((1, 0))[1], strict=True):
        torch.testing.assert_close(some, all_of_it, rtol=0, atol=0)


@pytest.mark.covers("ATTN-10")
def test_prompts_are_scored_a_few_queries_at_a_time(monkeypatch):
    monkeypatch.setattr(picks, "MOST_SCORES", HEADS * 50 * 7)  # seven queries
    bench = Bench((50, 40))
    bench.check((50, 40))


@pytest.mark.covers("ATTN-10")
def test_blocks_of_another_row_are_a_prefix():
    bench = Bench((24, 24))
    for part in (2, 3, 5):
        bench.rows[1][part][:16] = bench.rows[0][part][:16]
    bench.step((24, 0))
    bench.tables[1, :4] = bench.tables[0, :4]
    bench.done[1] = 16
    bench.check((0, 7))
    bench.check((0, 1))


@pytest.mark.parametrize("longest", [8, 40])
def test_plans_that_stay_are_refreshed_for_pickers(longest):
    bench = Bench((40, 9, 23) if longest == 40 else (8, 3, 6))
    bench.step((35, 2, 20) if longest == 40 else (5, 0, 3))
    plan = bench.backend.fixed_plan(StepShape(3, 3, 1, longest))
    for _ in range(3):
        bench.check((1, 1, 1), plan)


def test_equal_scores_are_picked_once_each():
    bench = Bench((30,))
    bench.rows[0][5][:] = bench.rows[0][5][:1]
    bench.step((29,))
    ((found,), _) = bench.step((1,))
    assert len(set(found[0].tolist())) == PICKS and picks.NONE not in found


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.int8, torch.float8_e4m3fn])
def test_index_keys_of_narrow_caches_pick_nearly_the_same(kv_dtype):
    bench = Bench((80, 60), dtype=torch.float32, kv_dtype=kv_dtype, most=20)
    bench.step((79, 30))
    picked, _ = bench.step((1, 30))
    shared = [
        len(bench.seen(row, position) & set(picked[row][at].tolist()))
        for row, first in ((0, 79), (1, 30))
        for at, position in enumerate(range(first, bench.done[row]))
    ]
    assert min(shared) >= 14 and sum(shared) / len(shared) > 18


@pytest.mark.parametrize(
    ("kv_dtype", "token"), [(torch.bfloat16, 128 * 2), (torch.float8_e4m3fn, 128), (torch.int8, 128 + 4)]
)
@pytest.mark.covers("ATTN-10")
def test_a_token_takes_its_index_key(kv_dtype, token):
    site = PickSite(61, num_heads=64, key_dim=128, scale=0.1, picks=2048)
    backend = TorchSdpaBackend(AttentionContext(CPU, torch.bfloat16, kv_dtype, 16))
    assert backend.picker_layout(site).bytes_per_block == 16 * token
