"""The attention kernels against attention by definition in float64; what no token owns is not a number."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from core_plugin_kernels_triton.attention import keys as kernel
from core_plugin_kernels_triton.attention import prompts
from core_plugin_kernels_triton.attention.backend import TritonBackend
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api.attention import AttentionContext, AttentionSite, BatchView
from core.api.steps import StepShape

CPU = torch.device("cpu")
SMALL = {
    "stored": 8,
    "merged": 4,
    "splits": 4,
    "joint": 16,
    "prompt_1024": {"m": 16, "n": 8, "warps": 1, "stages": 1},
    "few_1024": {"n": 8, "split": 16, "warps": 1, "stages": 1},
}
"""Tiles of which a few dozen tokens have several."""


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr("core_plugin_kernels_triton.attention.tiles.tiles", lambda device: SMALL)


@dataclass
class Step:
    """One step over a cache with history.

    Attributes:
        histories: Keys and values of each row, `(length, kv_heads, head_dim)`, as they are stored.
    """

    batch: BatchView
    kv: torch.Tensor
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    histories: list[tuple[torch.Tensor, torch.Tensor]]


def site_of(kv_heads=2, group=3, head_dim=8, **extra):
    return AttentionSite(0, kv_heads * group, kv_heads, head_dim, head_dim**-0.5, **extra)


def first_seen(position, site):
    first = 0 if site.window is None else max(0, position - site.window + 1)
    return first if site.chunk is None else max(first, position // site.chunk * site.chunk)


def stored(x, kv_dtype):
    """Return `x` as elements of the cache."""
    if kv_dtype.itemsize == 1:
        most = torch.finfo(kv_dtype).max
        return x.float().clamp(-most, most).to(kv_dtype).view(torch.uint8)
    return x.to(kv_dtype)


def poison(shape, kv_dtype):
    if kv_dtype.itemsize == 1:
        return torch.full(shape, 0x7F, dtype=torch.uint8)
    return torch.full(shape, torch.nan, dtype=kv_dtype)


def step_of(rows, site, size=4, *, dtype=torch.float32, kv_dtype=None, seed=0):
    """`rows` are `(context, new)`. Places in tables that nobody reads are 0 or another's; every such block is NaN."""
    kv_dtype = kv_dtype or dtype
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    blocks = [-(-(context + new) // size) for context, new in rows]
    order = rng.permutation(np.arange(1, sum(blocks) + 3))
    tables = np.full((len(rows), max(blocks, default=0) + 2), order[-1], dtype=np.int32)
    kv = poison((len(order) + 1, 2, size, site.num_kv_heads, site.head_dim), kv_dtype)
    histories, slots, taken = [], [], 0
    for row, (context, new) in enumerate(rows):
        mine = order[taken : taken + blocks[row]]
        taken += blocks[row]
        dead = first_seen(context, site) // size  # blocks that no query of the step sees were given back
        tables[row, : blocks[row]] = mine
        tables[row, :dead] = 0
        keys, values = torch.randn(2, context + new, site.num_kv_heads, site.head_dim).to(dtype)
        places = np.arange(context + new)
        at, offset = torch.from_numpy(mine[places // size]), torch.from_numpy(places % size)
        alive = slice(dead * size, context)
        kv[at[alive], 0, offset[alive]] = stored(keys[alive], kv_dtype)
        kv[at[alive], 1, offset[alive]] = stored(values[alive], kv_dtype)
        slots.append((at * size + offset)[context:])
        histories.append((keys, values))
    counts = [new for _, new in rows]
    lengths = [context + new for context, new in rows]
    tokens = sum(counts)
    batch = BatchView(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        np.array(lengths, dtype=np.int32),
        torch.from_numpy(tables),
        torch.cat([*slots, torch.empty(0, dtype=torch.int64)]).long(),
        max(counts, default=0),
        max(lengths, default=0),
    )
    q = torch.randn(tokens, site.num_heads, site.head_dim).to(dtype)
    news = zip(*[(k[len(k) - new :], v[len(v) - new :]) for (k, v), new in zip(histories, counts)])
    k, v = [torch.cat(one) for one in news] or q.new_empty(2, 0, site.num_kv_heads, site.head_dim)
    return Step(batch, kv, q, k, v, histories)


def attend(step, site, size=4, *, kv_dtype=None, sinks=None):
    """Write and attend; return what that gives."""
    backend = TritonBackend(AttentionContext(CPU, step.q.dtype, kv_dtype or step.q.dtype, size))
    layer = backend.layer(site)
    if sinks is not None:
        layer.use_sinks(sinks)
    plan = backend.plan(step.batch)
    layer.write_kv(step.k, step.v, step.kv, plan)
    return layer.forward(step.q, step.kv, plan)


def definition(step, site, sinks=None, kv_dtype=None):
    """Attend one token and head at a time, in float64."""
    out = torch.zeros(step.q.shape, dtype=torch.float64)
    token = 0
    for (keys, values), count in zip(step.histories, np.diff(step.batch.query_starts).tolist()):
        if kv_dtype is not None:
            read = [stored(one, kv_dtype).view(kv_dtype) for one in (keys, values)]
            keys, values = read
        keys, values = keys.double(), values.double()
        for position in range(len(keys) - count, len(keys)):
            first = first_seen(position, site)
            for head in range(site.num_heads):
                group = head // (site.num_heads // site.num_kv_heads)
                scores = keys[first : position + 1, group] @ step.q[token, head].double() * site.scale
                if site.softcap is not None:
                    scores = site.softcap * torch.tanh(scores / site.softcap)
                if site.slopes is not None:
                    away = position - torch.arange(first, position + 1, dtype=torch.float64)
                    scores -= site.slopes[head] * (away.sqrt() if site.rooted else away)
                if sinks is not None:
                    scores = torch.cat([scores, sinks[head : head + 1].double()])
                shares = torch.softmax(scores, 0)[: position + 1 - first]
                out[token, head] = shares @ values[first : position + 1, group]
            token += 1
    return out.flatten(1)


def check(rows, site, size=4, **options):
    step = step_of(rows, site, size, **options)
    sinks = torch.linspace(-2, 3, site.num_heads) if site.sinks else None
    found = attend(step, site, size, sinks=sinks, kv_dtype=options.get("kv_dtype"))
    assert found.shape == (len(step.q), site.num_heads * site.head_dim) and found.dtype == step.q.dtype
    torch.testing.assert_close(found.double(), definition(step, site, sinks), rtol=0, atol=2e-5)


MIXED = [(0, 19), (37, 1), (0, 1), (12, 7), (20, 1), (40, 4)]
"""Of three heads that share keys, rows of up to five tokens are computed in splits."""
SLOPES = tuple(0.5 ** (1 + head / 2) for head in range(6))


@pytest.mark.covers("ATTN-05")
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"window": 1},
        {"window": 7},
        {"window": 16},
        {"chunk": 6},
        {"chunk": 16},
        {"softcap": 1.5},
        {"sinks": True},
        {"slopes": SLOPES},
        {"slopes": SLOPES, "rooted": True},
        {"window": 9, "softcap": 2.0, "sinks": True, "slopes": SLOPES},
    ],
    ids=lambda extra: "-".join(extra) or "plain",
)
def test_steps_of_prompts_pieces_and_single_tokens(extra):
    check(MIXED, site_of(**extra))


@pytest.mark.parametrize(
    "rows",
    [
        [(0, 1)],
        [(0, 33)],
        [(31, 1)],
        [(33, 1), (63, 1), (0, 1)],
        [(64, 1)],
        [(0, 8), (40, 8), (0, 9)],
        [(15, 17), (0, 16)],
    ],
    ids=str,
)
@pytest.mark.covers("ATTN-05")
def test_rows_at_the_edges_of_tiles_and_splits(rows):
    check(rows, site_of(1, 2))


@pytest.mark.parametrize("kv_heads, group", [(1, 1), (3, 1), (1, 5), (2, 7), (1, 16), (1, 20)])
def test_heads_that_share_keys(kv_heads, group):
    check([(9, 6), (21, 1)], site_of(kv_heads, group))


@pytest.mark.parametrize("head_dim", [4, 16, 20, 24, 40, 64])
def test_sizes_of_heads(head_dim):
    check([(9, 6), (21, 1)], site_of(1, 2, head_dim))


@pytest.mark.parametrize("size", [1, 3, 8, 16, 32, 64])
def test_sizes_of_blocks(size):
    check([(9, 6), (37, 1), (0, 3)], site_of(1, 2, window=11), size)


TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.mark.parametrize(
    "kv_dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str
)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_dtypes_of_computation_and_cache(dtype, kv_dtype):
    """Against the values that the cache holds: the kernels add the rounding of the compute dtype and no other."""
    site = site_of(2, 2, 16)
    step = step_of([(9, 6), (37, 1), (0, 3)], site, dtype=dtype, kv_dtype=kv_dtype)
    found = attend(step, site, kv_dtype=kv_dtype)
    due = definition(step, site, kv_dtype=kv_dtype)
    wider = TOLERANCE[dtype] if kv_dtype.itemsize <= dtype.itemsize else TOLERANCE[torch.bfloat16]
    torch.testing.assert_close(found.double(), due, rtol=0, atol=wider)


@pytest.mark.parametrize("kv_dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_scales_of_each_head_bring_large_numbers_through_a_float8_cache(kv_dtype):
    site, rows = site_of(2, 2, 16), [(0, 9), (0, 1)]
    scales = torch.tensor([2.0**17, 2.0**9])
    plain = step_of(rows, site, kv_dtype=kv_dtype)
    due = attend(plain, site, kv_dtype=kv_dtype)
    step = step_of(rows, site, kv_dtype=kv_dtype)
    backend = TritonBackend(AttentionContext(CPU, torch.float32, kv_dtype, 4))
    layer = backend.layer(site)
    layer.use_scales(scales, torch.tensor(4.0))
    plan = backend.plan(step.batch)
    layer.write_kv(step.k * scales[:, None], step.v * 4, step.kv, plan)
    assert torch.equal(step.kv, plain.kv)
    q = step.q / scales.repeat_interleave(2)[:, None]
    torch.testing.assert_close(layer.forward(q, step.kv, plan), due * 4, rtol=1e-5, atol=1e-5)


def test_a_row_gives_the_same_alone_and_among_others():
    """Bit for bit, whatever the others need: splits, prompts, padding."""
    site = site_of(2, 2, window=40)
    rows = [(37, 1), (5, 1), (0, 19), (62, 1), (12, 9), (37, 8), (4, 3)]
    step = step_of(rows, site)
    together = attend(step, site)
    starts = step.batch.query_starts
    for row in range(len(rows)):
        mine = slice(starts[row], starts[row + 1])
        alone = BatchView(
            np.array([0, starts[row + 1] - starts[row]], dtype=np.int32),
            step.batch.seq_lens[row : row + 1],
            step.batch.block_tables[row : row + 1],
            step.batch.slots[mine],
            rows[row][1],
            sum(rows[row]),
        )
        found = attend(replace(step, batch=alone, q=step.q[mine], k=step.k[mine], v=step.v[mine]), site)
        assert torch.equal(found, together[mine]), rows[row]


@pytest.mark.parametrize(
    "extra",
    [{}, {"window": 21}, {"chunk": 16}, {"softcap": 2.0, "window": 30}, {"slopes": (0.5, 0.25, 0.1, 0.05)}],
    ids=["plain", "window", "chunk", "capped", "slopes"],
)
@pytest.mark.covers("ATTN-05")
def test_tiles_of_keys_that_all_queries_see_give_the_same_with_masks(extra, monkeypatch):
    """Bit for bit: which tiles these are depends on the queries beside a query."""
    site = site_of(2, 2, **extra)
    step, masked = step_of([(30, 40), (0, 45), (3, 9)], site), []
    own_tile, own_keys = kernel.attend_tile, prompts.attend_keys

    def counted(*given):
        masked.append(not given[-1])
        return own_tile(*given)

    monkeypatch.setattr(kernel, "attend_tile", counted)
    due = attend(step, site)
    assert masked.count(False) > 4 and masked.count(True) > 4
    torch.testing.assert_close(due.double(), definition(step, site), rtol=0, atol=2e-5)
    del masked[:]
    monkeypatch.setattr(prompts, "attend_keys", lambda *given: own_keys(*given[:-1], False))
    found = attend(step, site)
    assert all(masked) and torch.equal(found, due)


def test_a_prompt_in_pieces_equals_the_prompt_at_once():
    site = site_of(window=9)
    whole = step_of([(0, 23)], site)
    due = attend(whole, site)
    parts = []
    for begin, end in ((0, 6), (6, 7), (7, 20), (20, 23)):
        batch = replace(
            whole.batch,
            query_starts=np.array([0, end - begin], dtype=np.int32),
            seq_lens=np.array([end], dtype=np.int32),
            slots=whole.batch.slots[begin:end],
            max_query_len=end - begin,
            max_seq_len=end,
        )
        part = replace(whole, batch=batch, q=whole.q[begin:end], k=whole.k[begin:end], v=whole.v[begin:end])
        parts.append(attend(part, site))
    torch.testing.assert_close(torch.cat(parts), due, rtol=0, atol=1e-6)


def test_steps_without_rows_and_rows_without_tokens():
    site = site_of()
    assert attend(step_of([], site), site).shape == (0, 48)
    check([(5, 0), (7, 3), (4, 0), (4, 0), (9, 1), (3, 0)], site)


def test_slices_of_a_fused_projection_are_read_in_place():
    site = site_of(2, 2, 16)
    step = step_of([(9, 6), (37, 1)], site)
    fused = torch.cat([step.q, step.k, step.v], 1)
    q, k, v = fused.split([4, 2, 2], 1)
    found = attend(replace(step, q=q, k=k, v=v), site)
    torch.testing.assert_close(found.double(), definition(step, site), rtol=0, atol=2e-5)


def test_a_row_that_is_not_a_number_leaves_the_others_alone():
    site, rows = site_of(1, 2), [(0, 9), (21, 1), (14, 1), (0, 3)]
    step = step_of(rows, site)
    due = attend(step_of(rows, site), site)
    step.q[9], step.k[10] = torch.nan, torch.inf
    found = attend(step, site)
    assert torch.equal(found[:9], due[:9]) and torch.equal(found[11:], due[11:])
    assert found[9].isnan().all() and not found[10].isfinite().all()


def test_the_step_writes_exactly_its_slots():
    site = site_of()
    step = step_of([(5, 3), (9, 1)], site)
    before = step.kv.clone()
    attend(step, site)
    blocks, offsets = step.batch.slots // 4, step.batch.slots % 4
    assert torch.equal(step.kv[blocks, 0, offsets], step.k) and torch.equal(step.kv[blocks, 1, offsets], step.v)
    before[blocks, :, offsets] = step.kv[blocks, :, offsets]
    assert torch.equal(before.view(torch.int32), step.kv.view(torch.int32))


def test_fixed_plans_give_what_plans_of_the_step_give():
    """Bit for bit, although the longest row that the shape allows has more splits."""
    site, size = site_of(window=50), 4
    step = step_of([(37, 1), (5, 1), (55, 1)], site, size)
    backend = TritonBackend(AttentionContext(CPU, torch.float32, torch.float32, size))
    layer = backend.layer(site)
    plan = backend.plan(step.batch)
    layer.write_kv(step.k, step.v, step.kv, plan)
    due = layer.forward(step.q, step.kv, plan)
    fixed = backend.fixed_plan(StepShape(4, 4, 1, 64))
    tables = torch.zeros(4, 16, dtype=torch.int32)
    tables[:3] = torch.nn.functional.pad(step.batch.block_tables, (0, 16))[:, :16]
    padded = BatchView(
        np.arange(5, dtype=np.int32),
        np.array([38, 6, 56, 1], dtype=np.int32),
        tables,
        torch.nn.functional.pad(step.batch.slots, (0, 1)),
        1,
        64,
    )
    backend.refresh(fixed, padded)
    pad = [torch.cat([one, one[:1] * 0]) for one in (step.q, step.k, step.v)]
    layer.write_kv(pad[1], pad[2], step.kv, fixed)
    assert torch.equal(layer.forward(pad[0], step.kv, fixed)[:3], due)


@pytest.mark.covers("COMP-03")
@pytest.mark.parametrize("rows", [[(37, 1), (0, 11), (50, 3)], [(0, 16)], [(9, 2), (3, 1)]])
def test_fixed_plans_of_prompts_give_what_plans_of_the_step_give(rows):
    """Bit for bit, beside a row that has the padding, rows without a token, and NaN in what nobody uses."""
    site, size = site_of(window=30), 4
    step = step_of(rows, site, size)
    backend = TritonBackend(AttentionContext(CPU, torch.float32, torch.float32, size))
    layer = backend.layer(site)
    plan = backend.plan(step.batch)
    layer.write_kv(step.k, step.v, step.kv, plan)
    due = layer.forward(step.q, step.kv, plan)
    step.kv[0] = 0  # nobody's block: padding writes to it, and reads it
    tokens, wanted = len(step.q), 20
    fixed = backend.fixed_plan(StepShape(wanted, 6, wanted, 64))
    used, last = len(rows), wanted - tokens
    starts, lengths = np.full(7, tokens, dtype=np.int32), np.ones(6, dtype=np.int32)
    starts[: used + 1], starts[6] = step.batch.query_starts, wanted
    lengths[:used], lengths[5] = step.batch.seq_lens, last
    tables = torch.zeros(6, 16, dtype=torch.int32)
    tables[:used] = torch.nn.functional.pad(step.batch.block_tables, (0, 16))[:, :16]
    slots = torch.nn.functional.pad(step.batch.slots, (0, last))
    backend.refresh(fixed, BatchView(starts, lengths, tables, slots, wanted, 64))
    assert fixed.work(4) == (True, 4, 64) and fixed.work(wanted) == (False, wanted, 64)
    pad = [torch.cat([one, one[:1].expand(last, -1, -1)]) for one in (step.q, step.k, step.v)]
    layer.write_kv(pad[1], pad[2], step.kv, fixed)
    found = layer.forward(pad[0], step.kv, fixed)
    assert torch.equal(found[:tokens], due) and found.isfinite().all()


@pytest.mark.exhaustive
@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(st.integers(0, 50), st.sampled_from([0, 1, 1, 2, 5, 17])), min_size=1, max_size=5),
    size=st.sampled_from([1, 4, 16]),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 5),
    window=st.sampled_from([None, 1, 2, 7, 16, 1000]),
    softcap=st.sampled_from([None, 5.0]),
    steep=st.sampled_from([None, 0.5, 2.0]),
    chunk=st.sampled_from([None, None, 1, 6, 16, 1000]),
    sinks=st.booleans(),
    rooted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_batch(rows, size, kv_heads, group, window, softcap, steep, chunk, sinks, rooted, seed):
    rows = [(context, max(new, 1 - context)) for context, new in rows]
    slopes = None if steep is None else tuple(steep ** (head + 1) for head in range(kv_heads * group))
    terms = {"slopes": slopes, "rooted": rooted, "sinks": sinks}
    site = site_of(kv_heads, group, window=window, softcap=softcap, chunk=chunk, **terms)
    check(rows, site, size, seed=seed)
