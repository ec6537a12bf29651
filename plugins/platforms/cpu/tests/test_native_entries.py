"""Native attention to compressed entries, and pickers of entries, against their definition in float64."""

import pytest
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_cpu.native import attention as kernels
from core_plugin_torch_sdpa.elements import decode, encode

from core.api.attention import AttentionContext, CompressedSite, PickSite

from .latents import views

CPU = torch.device("cpu")
ROWS = ((1300, 1), (0, 90), (400, 40), (0, 33), (45, 3), (0, 1), (60, 17), (535, 1), (20, 1), (2, 1))
"""Context and new tokens: rows without an entry, with fewer than are picked and with more, in pieces and decoding."""


class Case:
    """A layer, its cache with the entries of all positions and nothing sensible beside them, and what the step asks."""

    def __init__(self, site, dtype, kv_dtype, block_size, rows=ROWS):
        random = torch.Generator().manual_seed(3)
        self.site, self.rows = site, rows
        backend = NativeAttentionBackend(AttentionContext(CPU, dtype, kv_dtype, block_size))
        index = isinstance(site, PickSite)
        size = site.key_dim if index else site.head_dim
        self.layer = backend.picker(site) if index else backend.compressed(site)
        layout = backend.picker_layout(site) if index else backend.compressed_layout(site)
        whole, step, blocks = views(rows, block_size)
        kept = [torch.randn(context + new, size, generator=random).to(dtype) for context, new in rows]
        self.kv = torch.full((blocks * layout.bytes_per_block,), 0xFF, dtype=torch.uint8).view(layout.dtype)
        self.kv = self.kv.view(blocks, *layout.block_shape)
        self.layer.write(torch.cat(kept), self.kv, backend.plan(whole))
        opened = [decode(encode(one, kv_dtype), kv_dtype, torch.float64) for one in kept]
        self.entries = [one[site.ratio - 1 :: site.ratio] for one in opened]
        self.plan = backend.plan(step)
        self.q = torch.randn(sum(new for _, new in rows), site.num_heads, size, generator=random).to(dtype)

    def queries(self):
        """Yield token, the entries of its row, and how many it sees."""
        token = 0
        for (context, new), entries in zip(self.rows, self.entries, strict=True):
            for position in range(context, context + new):
                yield token, entries, (position + 1) // self.site.ratio
                token += 1


def check(site, dtype=torch.float32, kv_dtype=None, block_size=32, rows=ROWS):
    case = Case(site, dtype, kv_dtype or dtype, block_size, rows)
    picked, random = None, torch.Generator().manual_seed(4)
    if site.picks is not None:
        picked = torch.full((len(case.q), site.picks), -1, dtype=torch.int32)
        for token, _, seen in case.queries():
            few = min(seen, site.picks)
            picked[token, site.picks - few :] = torch.randperm(seen, generator=random)[:few].int()
    out, sums = case.layer.forward(case.q, case.kv, case.plan, picked)
    assert out.dtype == sums.dtype == torch.float32
    due, logs = [], []
    for token, entries, seen in case.queries():
        places = torch.arange(seen) if picked is None else picked[token][picked[token] >= 0].long()
        scores = case.q[token].double() @ entries[places].T * site.scale
        logs.append(scores.logsumexp(-1))
        due.append(scores.softmax(-1) @ entries[places])
    tolerance = {"rtol": 1e-4, "atol": 2e-5} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.02}
    torch.testing.assert_close(out, torch.stack(due).float(), **tolerance)
    torch.testing.assert_close(sums, torch.stack(logs).float(), **tolerance)


@pytest.mark.covers("ATTN-10")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "size", "ratio", "picks"), [(3, 48, 4, 20), (100, 32, 8, None), (16, 128, 4, None)])
def test_queries_see_their_entries(isa, heads, size, ratio, picks, dtype):
    check(CompressedSite(0, heads, size, size**-0.5, ratio, picks), dtype)


@pytest.mark.covers("ATTN-10")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_dtype", list(kernels.CACHE_CODES))
@pytest.mark.parametrize(("size", "picks"), [(64, 20), (52, None)])
def test_entries_of_every_dtype(isa, size, picks, kv_dtype, dtype):
    check(CompressedSite(0, 5, size, size**-0.5, 4, picks), dtype, kv_dtype)


@pytest.mark.parametrize(("ratio", "block_size"), [(1, 32), (16, 16), (3, 48), (2, 256), (128, 128), (8, 128)])
@pytest.mark.parametrize("picks", [None, 1, 9])
def test_blocks_hold_one_entry_or_more(ratio, block_size, picks):
    check(CompressedSite(0, 4, 32, 0.2, ratio, picks), torch.bfloat16, block_size=block_size)


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("picks", [None, 600])
@pytest.mark.parametrize("rows", [((9000, 1),), ((8000, 1), (900, 1)), ((0, 2500), (6001, 1))])
def test_entries_are_divided_among_threads(rows, picks, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(CompressedSite(0, 4, 64, 0.1, 4, picks), torch.bfloat16, rows=rows)
    finally:
        torch.set_num_threads(before)


@pytest.mark.covers("ATTN-10")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("ratio", "block_size", "picks"), [(4, 32, 20), (8, 16, 7), (2, 64, 500)])
def test_entries_of_the_best_scores_are_picked(isa, ratio, block_size, picks, dtype):
    site = PickSite(1, 18, 32, 0.3, picks, ratio)
    case = Case(site, dtype, dtype, block_size)
    weights = torch.randn(len(case.q), site.num_heads, generator=torch.Generator().manual_seed(5))
    picked = case.layer.forward(case.q, weights, case.kv, case.plan)
    for token, entries, seen in case.queries():
        places = picked[token][picked[token] >= 0].long()
        assert len(places) == len(set(places.tolist())) == min(seen, picks)
        if seen > picks:
            scores = weights[token].double() @ torch.relu(case.q[token].double() @ entries[:seen].T * site.scale)
            left = scores.scatter(0, places, -torch.inf)
            assert left.max() <= scores[places].min() + 2e-5 * scores.abs().max()


def test_what_does_not_fit_is_refused():
    site = CompressedSite(0, 4, 32, 0.2, 4, 3)
    backend = NativeAttentionBackend(AttentionContext(CPU, torch.float32, torch.float32, 16))
    case = Case(site, torch.float32, torch.float32, 16, ((50, 2),))
    layer, q, picked = case.layer, case.q, torch.zeros(2, 3, dtype=torch.int32)
    layer.forward(q, case.kv, case.plan, picked)
    for given in ((q[:1], picked), (q.bfloat16(), picked), (q, picked[:, :2]), (q, picked.long())):
        with pytest.raises(ValueError, match="do not fit"):
            layer.forward(given[0], case.kv, case.plan, given[1])
    with pytest.raises(ValueError, match="do not fit"):
        layer.write(torch.zeros(2, 31), case.kv, case.plan)
    picked[1, 2] = 13
    with pytest.raises(IndexError, match="13 for token 1, at position 51; -1 to 12 expected"):
        layer.forward(q, case.kv, case.plan, picked)
    with pytest.raises(ValueError, match="16 tokens has no whole number of entries that stand for 3"):
        backend.compressed_layout(CompressedSite(0, 4, 32, 0.2, 3))
