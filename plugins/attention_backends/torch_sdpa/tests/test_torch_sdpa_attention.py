"""The batched backend against the executable specification, on generated batches."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from core_plugin_torch_sdpa.backend import TorchSdpaBackend
from core_plugin_torch_sdpa.reference import reference_attention
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api.attention import AttentionContext, AttentionSite, BatchView

CPU = torch.device("cpu")


@dataclass
class Case:
    """One step: a batch over a cache with history, and this step's q, k, v."""

    batch: BatchView
    kv: torch.Tensor
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def make_case(rows, site, block_size, *, seed=0, dtype=torch.float32, kv_dtype=None, spare_columns=0):
    """`rows` are `(context, queries)`; blocks are scattered, tables padded with zeros, unused places poisoned."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    context, queries = np.array(rows, dtype=np.int64).T
    seq_lens = context + queries
    needed = -(-seq_lens // block_size)
    tables = np.zeros((len(rows), int(needed.max()) + spare_columns), dtype=np.int32)
    free = iter(rng.permutation(int(needed.sum()) + 3) + 1)
    for row, count in enumerate(needed):
        tables[row, :count] = [next(free) for _ in range(count)]
    row_of = np.repeat(np.arange(len(rows)), queries)
    starts = np.concatenate([[0], np.cumsum(queries)])
    positions = np.arange(starts[-1]) - np.repeat(starts[:-1] - context, queries)
    slots = tables[row_of, positions // block_size].astype(np.int64) * block_size + positions % block_size
    shape = (int(needed.sum()) + 4, 2, block_size, site.num_kv_heads, site.head_dim)
    batch = BatchView(
        starts.astype(np.int32),
        seq_lens.astype(np.int32),
        torch.from_numpy(tables),
        torch.from_numpy(slots),
        int(queries.max()),
        int(seq_lens.max()),
    )
    tokens = int(starts[-1])
    heads = (site.num_heads + 2 * site.num_kv_heads, site.head_dim)
    qkv = torch.randn(tokens, *heads).to(dtype).split([site.num_heads, site.num_kv_heads, site.num_kv_heads], 1)
    return Case(batch, torch.randn(shape).to(kv_dtype or dtype), *qkv)


def attend(case, site, block_size, *, dtype=torch.float32, kv_dtype=None, sinks=None):
    backend = TorchSdpaBackend(AttentionContext(CPU, dtype, kv_dtype or dtype, block_size))
    layer = backend.layer(site)
    if sinks is not None:
        layer.use_sinks(sinks)
    plan = backend.plan(case.batch)
    layer.write_kv(case.k, case.v, case.kv, plan)
    return layer.forward(case.q, case.kv, plan)


def check(rows, site, block_size, **options):
    case = make_case(rows, site, block_size, **options)
    sinks = torch.randn(site.num_heads) if site.sinks else None
    got = attend(case, site, block_size, sinks=sinks)
    torch.testing.assert_close(got, reference_attention(case.q, case.kv, case.batch, site, block_size, sinks))


def site_of(kv_heads=2, ratio=3, head_dim=8, **extra):
    return AttentionSite(0, kv_heads * ratio, kv_heads, head_dim, head_dim**-0.5, **extra)


@pytest.mark.covers("ATTN-03")
@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(st.integers(0, 40), st.sampled_from([1, 1, 2, 5, 17, 33])), min_size=1, max_size=6),
    block_size=st.sampled_from([1, 4, 16]),
    kv_heads=st.integers(1, 3),
    ratio=st.integers(1, 4),
    window=st.sampled_from([None, 1, 2, 7, 16, 1000]),
    softcap=st.sampled_from([None, 5.0]),
    steep=st.sampled_from([None, 0.5, 2.0]),
    chunk=st.sampled_from([None, None, 1, 6, 16, 1000]),
    sinks=st.booleans(),
    rooted=st.booleans(),
    spare_columns=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_any_batch_equals_the_specification(
    rows, block_size, kv_heads, ratio, window, softcap, steep, chunk, sinks, rooted, spare_columns, seed
):
    slopes = None if steep is None else tuple(steep ** (head + 1) for head in range(kv_heads * ratio))
    terms = {"slopes": slopes, "rooted": rooted, "sinks": sinks}
    site = site_of(kv_heads, ratio, window=window, softcap=softcap, chunk=chunk, **terms)
    check(rows, site, block_size, seed=seed, spare_columns=spare_columns)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8])
@pytest.mark.covers("ATTN-03")
def test_decode_at_block_boundaries(length):
    check([(length - 1, 1)], site_of(), 4)


def test_decode_rows_of_very_different_length():
    rows = [(3, 1), (700, 1), (20, 1), (650, 1), (0, 1), (90, 1)]
    check(rows, site_of(1, 2), 4)
    check(rows, site_of(1, 2, window=64), 4)


def test_windows_that_straddle_a_block_more_than_others():
    check([(23, 1), (20, 1), (2, 1)], site_of(window=6), 4)


@pytest.mark.parametrize("window", [None, 30, 600])
@pytest.mark.parametrize("softcap", [None, 20.0])
def test_a_long_chunk_is_tiled(window, softcap, monkeypatch):
    monkeypatch.setattr("core_plugin_torch_sdpa.partition.QUERY_TILE", 48)
    check([(100, 150), (0, 130), (5, 1)], site_of(1, 2, window=window, softcap=softcap), 16)


def test_the_step_writes_exactly_its_slots():
    site = site_of()
    case = make_case([(5, 3), (9, 1)], site, 4)
    before = case.kv.clone()
    attend(case, site, 4)
    blocks, offsets = case.batch.slots // 4, case.batch.slots % 4
    assert torch.equal(case.kv[blocks, 0, offsets], case.k)
    assert torch.equal(case.kv[blocks, 1, offsets], case.v)
    before[blocks, :, offsets] = case.kv[blocks, :, offsets]
    assert torch.equal(before, case.kv)


@pytest.mark.parametrize(("dtype", "kv_dtype"), [(torch.bfloat16, torch.bfloat16), (torch.float32, torch.bfloat16)])
def test_half_precision_stays_close(dtype, kv_dtype):
    site, rows = site_of(2, 2, 16), [(0, 20), (30, 1), (12, 7), (64, 1)]
    case = make_case(rows, site, 16, dtype=dtype, kv_dtype=kv_dtype)
    got = attend(case, site, 16, dtype=dtype, kv_dtype=kv_dtype)
    assert got.dtype == dtype
    wanted = reference_attention(case.q, case.kv, case.batch, site, 16)
    torch.testing.assert_close(got.float(), wanted, rtol=0.03, atol=0.03)


@pytest.mark.covers("ATTN-03")
def test_a_prompt_in_chunks_equals_the_prompt_at_once():
    site, size, total = site_of(window=9), 4, 23
    whole = make_case([(0, total)], site, size)
    wanted = attend(whole, site, size)
    kv = torch.zeros_like(whole.kv)
    parts = []
    for begin, end in ((0, 6), (6, 7), (7, 20), (20, 23)):
        batch = BatchView(
            np.array([0, end - begin], dtype=np.int32),
            np.array([end], dtype=np.int32),
            whole.batch.block_tables,
            whole.batch.slots[begin:end],
            end - begin,
            end,
        )
        part = Case(batch, kv, whole.q[begin:end], whole.k[begin:end], whole.v[begin:end])
        parts.append(attend(part, site, size))
    torch.testing.assert_close(torch.cat(parts), wanted)


def test_layers_with_different_windows_share_one_plan():
    size = 4
    sites = [site_of(window=None), site_of(window=3), site_of(softcap=4.0), site_of(window=None)]
    backend = TorchSdpaBackend(AttentionContext(CPU, torch.float32, torch.float32, size))
    layers = [backend.layer(site) for site in sites]
    case = make_case([(11, 6), (17, 1), (0, 9)], sites[0], size)
    plan = backend.plan(case.batch)
    assert len(plan.variants) == 3
    for site, layer in zip(sites, layers):
        layer.write_kv(case.k, case.v, case.kv, plan)
        wanted = reference_attention(case.q, case.kv, case.batch, site, size)
        torch.testing.assert_close(layer.forward(case.q, case.kv, plan), wanted)


def test_a_plan_is_for_the_layers_of_its_view():
    size, sites = 4, [replace(site_of(window=window), layer=layer) for layer, window in enumerate((None, 3, None))]
    backend = TorchSdpaBackend(AttentionContext(CPU, torch.float32, torch.float32, size))
    layers = [backend.layer(site) for site in sites]
    case = make_case([(11, 6), (17, 1)], sites[0], size)
    plan = backend.plan(replace(case.batch, layers=frozenset({0, 2})))
    for place in (0, 2):
        layers[place].write_kv(case.k, case.v, case.kv, plan)
        wanted = reference_attention(case.q, case.kv, case.batch, sites[place], size)
        torch.testing.assert_close(layers[place].forward(case.q, case.kv, plan), wanted)
    with pytest.raises(ValueError, match="another cache group"):
        layers[1].forward(case.q, case.kv, plan)


def test_the_layout_is_one_indexable_block():
    backend = TorchSdpaBackend(AttentionContext(CPU, torch.bfloat16, torch.bfloat16, 16))
    layout = backend.kv_layout(site_of(3, 3, 64))
    assert layout.block_shape == (2, 16, 3, 64)
    assert layout.bytes_per_block == 2 * 16 * 3 * 64 * 2
