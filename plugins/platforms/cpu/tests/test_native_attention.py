"""Native attention against the executable specification, on generated batches, at every instruction set here."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_cpu.manifest import CPU_NATIVE
from core_plugin_cpu.native import attention as kernels
from core_plugin_cpu.native import library, refine
from core_plugin_torch_sdpa.elements import decode, encode
from core_plugin_torch_sdpa.reference import reference_attention
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.api.attention import AttentionContext, AttentionSite, BatchView
from core.api.descriptors import AttentionRequest
from core.api.verdict import ProbeResult

CPU = torch.device("cpu")


@dataclass
class Case:
    """One step over a cache with history. `plain` is the cache in the specification's layout, `kv` in the kernel's."""

    batch: BatchView
    plain: torch.Tensor
    kv: torch.Tensor
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def pack(plain, dtype):
    """`(blocks, 2, block_size, kv_heads, head_dim)` to the layout that `attention.h` documents, of elements `dtype`."""
    blocks, _, size, heads, dim = plain.shape
    stored = encode(plain, dtype).permute(0, 1, 3, 2, 4)  # (blocks, 2, heads, size, dim or dim + 4)
    elements, scales = stored[..., :dim], stored[..., dim:]
    keys, values = elements[:, 0], elements[:, 1]
    if dtype in (torch.bfloat16, torch.int8):
        keys = keys.reshape(blocks, heads, size, dim // 2, 2).transpose(2, 3)
        values = values.reshape(blocks, heads, size // 2, 2, dim).transpose(3, 4)
    else:
        keys = keys.transpose(2, 3)
    flat = torch.stack([part.reshape(blocks, heads, size * dim) for part in (keys, values)], 1)
    return torch.cat((flat, scales.reshape(blocks, 2, heads, -1)), -1).contiguous()


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
    plain = torch.randn(int(needed.sum()) + 4, 2, block_size, site.num_kv_heads, site.head_dim).to(dtype)
    batch = BatchView(
        starts.astype(np.int32),
        seq_lens.astype(np.int32),
        torch.from_numpy(tables),
        torch.from_numpy(slots),
        int(queries.max()),
        int(seq_lens.max()),
    )
    heads = (site.num_heads + 2 * site.num_kv_heads, site.head_dim)
    qkv = torch.randn(int(starts[-1]), *heads).to(dtype)
    return Case(batch, plain, pack(plain, kv_dtype or dtype), *qkv.split([site.num_heads, *[site.num_kv_heads] * 2], 1))


def attend(case, site, block_size, dtype=torch.float32, kv_dtype=None):
    backend = NativeAttentionBackend(AttentionContext(CPU, dtype, kv_dtype or dtype, block_size))
    layer, plan = backend.layer(site), backend.plan(case.batch)
    layer.write_kv(case.k, case.v, case.kv, plan)
    return layer.forward(case.q, case.kv, plan)


def write_plain(case, block_size):
    blocks, offsets = case.batch.slots // block_size, case.batch.slots % block_size
    case.plain[blocks, 0, offsets], case.plain[blocks, 1, offsets] = case.k, case.v


@cache
def specified(rows, site, block_size, dtype, kv_dtype, seed, spare_columns):
    """What the specification gives: most of a test's time, and the same at every instruction set."""
    case = make_case(rows, site, block_size, seed=seed, dtype=dtype, kv_dtype=kv_dtype, spare_columns=spare_columns)
    write_plain(case, block_size)
    plain = decode(encode(case.plain, kv_dtype), kv_dtype, torch.float32)
    return reference_attention(case.q, plain, case.batch, site, block_size)


def check(rows, site, block_size, dtype=torch.float32, kv_dtype=None, *, seed=0, spare_columns=0):
    kv_dtype = kv_dtype or dtype
    case = make_case(rows, site, block_size, seed=seed, dtype=dtype, kv_dtype=kv_dtype, spare_columns=spare_columns)
    got = attend(case, site, block_size, dtype, kv_dtype)
    write_plain(case, block_size)
    assert torch.equal(case.kv, pack(case.plain, kv_dtype)), "the step must write its slots and nothing else"
    wanted = specified(tuple(rows), site, block_size, dtype, kv_dtype, seed, spare_columns)
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), wanted, **tolerance(dtype, kv_dtype))


def tolerance(dtype, kv_dtype):
    """Queries and weights may be bfloat16 if the queries are; beside int8 they may be integers of 16 bits."""
    if dtype == torch.bfloat16:
        return {"rtol": 0.02, "atol": 0.01}
    return {"rtol": 1e-4, "atol": 5e-4 if kv_dtype == torch.int8 else 1e-5}


def site_of(kv_heads=2, ratio=3, head_dim=16, **extra):
    return AttentionSite(0, kv_heads * ratio, kv_heads, head_dim, head_dim**-0.5, **extra)


def batches(examples):
    relaxed = [HealthCheck.function_scoped_fixture]
    chosen = settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=relaxed)
    given_batch = given(
        rows=st.lists(st.tuples(st.integers(0, 150), st.sampled_from([1, 1, 2, 5, 17, 33])), min_size=1, max_size=5),
        block_size=st.sampled_from([16, 32, 48, 256]),
        kv_heads=st.integers(1, 3),
        ratio=st.sampled_from([1, 2, 3, 4, 5, 7]),
        head_dim=st.sampled_from([16, 32, 64, 80, 96]),
        window=st.sampled_from([None, 1, 2, 7, 16, 40, 1000]),
        softcap=st.sampled_from([None, 5.0]),
        dtype=st.sampled_from([torch.float32, torch.bfloat16]),
        kv_dtype=st.sampled_from(list(kernels.CACHE_CODES)),
        seed=st.integers(0, 99),
    )
    return lambda test: chosen(given_batch(test))


@pytest.mark.covers("ATTN-03", "ATTN-04")
@batches(60)
def test_any_batch_equals_the_specification(
    isa, rows, block_size, kv_heads, ratio, head_dim, window, softcap, dtype, kv_dtype, seed
):
    site = site_of(kv_heads, ratio, head_dim, window=window, softcap=softcap)
    check(rows, site, block_size, dtype, kv_dtype, seed=seed, spare_columns=seed % 3)


PAIRS = [
    (torch.float32, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.bfloat16, torch.int8),
    (torch.bfloat16, torch.float8_e4m3fn),
    (torch.float32, torch.float8_e5m2),
    (torch.float32, torch.float16),
]
"""Dtypes of the queries and of the cache."""


@pytest.mark.parametrize(("dtype", "kv_dtype"), PAIRS)
@pytest.mark.parametrize("window", [None, 500])
def test_long_decode_rows_are_split_and_merged(isa, dtype, kv_dtype, window):
    check([(1500, 1)], site_of(1, 4, 64, window=window), 32, dtype, kv_dtype)
    check([(1290, 1), (40, 1), (700, 3)], site_of(2, 1, 32, window=window), 16, dtype, kv_dtype)


@pytest.mark.parametrize(("dtype", "kv_dtype"), PAIRS)
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_kv_heads_of_a_decode_row_share_tiles(isa, threads, dtype, kv_dtype):
    """Groups of 5 kv heads that differ in size, ranges of keys, both, and rows that are neither."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check([(1500, 1)], site_of(5, 3, 32, window=1000), 32, dtype, kv_dtype)
        check([(600, 1), (20, 1), (0, 40)], site_of(40, 1, 16, softcap=5.0), 16, dtype, kv_dtype)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("dtype", "kv_dtype"), PAIRS)
def test_prompts_longer_than_a_tile(isa, dtype, kv_dtype):
    check([(0, 200), (170, 70), (300, 1)], site_of(1, 3, 64), 32, dtype, kv_dtype)
    check([(0, 130)], site_of(1, 64, 16), 32, dtype, kv_dtype)


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads(isa, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check([(900, 1), (0, 90), (3, 1)], site_of(2, 2, 64), 32)
    finally:
        torch.set_num_threads(before)


def test_rows_without_queries_are_passed_over(isa):
    check([(40, 0), (700, 1), (33, 0), (20, 5), (600, 0)], site_of(3, 2, 32), 16, torch.bfloat16)


def test_the_largest_head(isa):
    check([(60, 1), (0, 20)], site_of(1, 2, 256), 16, torch.bfloat16)


def test_layers_of_different_geometry_share_a_backend(isa):
    backend = NativeAttentionBackend(AttentionContext(CPU, torch.float32, torch.float32, 16))
    for site in (site_of(2, 3, 32), site_of(1, 8, 64), site_of(2, 3, 32, window=5)):
        case = make_case([(50, 1), (0, 30)], site, 16)
        plan, layer = backend.plan(case.batch), backend.layer(site)
        layer.write_kv(case.k, case.v, case.kv, plan)
        write_plain(case, 16)
        wanted = reference_attention(case.q, case.plain, case.batch, site, 16)
        torch.testing.assert_close(layer.forward(case.q, case.kv, plan), wanted, rtol=1e-4, atol=1e-5)


def test_a_row_that_is_not_finite_leaves_the_others_alone(isa):
    site = site_of(2, 3, 64)
    for dtype in (torch.float32, torch.bfloat16):
        case = make_case([(40, 1), (90, 1), (0, 20)], site, 16, dtype=dtype)
        case.q[0] = float("nan")
        got = attend(case, site, 16, dtype)
        assert got[0].isnan().all() and got[1:].isfinite().all()


@pytest.mark.covers("ATTN-04")
def test_the_layout_is_one_indexable_block():
    backend = NativeAttentionBackend(AttentionContext(CPU, torch.bfloat16, torch.bfloat16, 16))
    layout = backend.kv_layout(site_of(3, 3, 64))
    assert layout.block_shape == (2, 3, 16 * 64)
    assert layout.bytes_per_block == 2 * 16 * 3 * 64 * 2


def request_of(**changed):
    fields = {"dtype": "bfloat16", "kv_dtype": "bfloat16", "head_dim": 64, **changed}
    return AttentionRequest(device_type="cpu", num_heads=9, num_kv_heads=3, block_size=32, **fields)


def test_what_the_kernels_cannot_do_is_refused():
    probe = ProbeResult(available=True)
    assert request_of(dtype="float16").check(CPU_NATIVE).reasons
    assert refine.attention(request_of(), probe).ok == library.available()
    assert "head_dim 72" in refine.attention(request_of(head_dim=72), probe).reasons[-1]


@pytest.mark.parametrize(
    ("kv_dtype", "per_head"),
    [(torch.bfloat16, 128), (torch.float16, 128), (torch.int8, 68), (torch.float8_e4m3fn, 64)],
)
def test_bytes_of_a_block(kv_dtype, per_head):
    backend = NativeAttentionBackend(AttentionContext(CPU, torch.bfloat16, kv_dtype, 16))
    assert backend.kv_layout(site_of(3, 3, 64)).bytes_per_block == 2 * 16 * 3 * per_head


@pytest.mark.parametrize("kv_dtype", [torch.float16, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
def test_values_at_the_edges_are_stored_as_the_reference_stores_them(isa, kv_dtype):
    site = site_of(1, 1, 32)
    case = make_case([(0, 4)], site, 16, kv_dtype=kv_dtype)
    tiny = [0.0, -0.0, 1e-9, 2**-25, 2**-16, 2**-9, 3 * 2**-11, 2**-6]
    edges = torch.tensor([*tiny, 0.0157, 1.0625, 9.5, 449.0, 464.0, 6e4, -1e5, 1e30])
    case.k[0, 0, :16], case.v[0, 0, 16:] = edges, edges
    case.k[1], case.v[2] = 0.0, 1e-42
    attend(case, site, 16, kv_dtype=kv_dtype)
    write_plain(case, 16)
    assert torch.equal(case.kv, pack(case.plain, kv_dtype))


@pytest.mark.parametrize("part", ["q", "k", "v"])
@pytest.mark.parametrize("kv_dtype", [torch.float16, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
def test_what_is_no_number_is_seen_by_its_row_only(isa, kv_dtype, part):
    site = site_of(1, 3, 64)
    case = make_case([(40, 1), (90, 1), (0, 20)], site, 16, kv_dtype=kv_dtype)
    getattr(case, part)[0] = float("nan")
    got = attend(case, site, 16, kv_dtype=kv_dtype)
    assert got[0].isnan().all() and got[1:].isfinite().all()


@pytest.mark.parametrize("peak", [300, 690])
@pytest.mark.parametrize("rows", [[(0, 700)], [(650, 50)], [(699, 1), (500, 1)]])
def test_scores_that_grow_beyond_every_earlier_one(isa, rows, peak):
    """Weights are relative to the first keys' scores until later ones would overflow."""
    site, dtype = site_of(1, 3, 64), torch.bfloat16
    case = make_case(rows, site, 32, dtype=dtype)
    case.q.copy_(torch.ones_like(case.q))
    case.plain[:, 0] *= 0.1
    case.k.mul_(0.1)
    write_plain(case, 32)
    for row in range(len(rows)):  # one key of every row is far above the others, and one below
        for place, value in ((peak, 40.0), (peak - 3, -40.0), (peak + 5, 12.0)):
            block = case.batch.block_tables[row, place // 32]
            case.plain[block, 0, place % 32] = value
    case.kv = pack(case.plain, dtype)
    backend = NativeAttentionBackend(AttentionContext(CPU, dtype, dtype, 32))
    got = backend.layer(site).forward(case.q, case.kv, backend.plan(case.batch))
    wanted = reference_attention(case.q, case.plain.float(), case.batch, site, 32)
    torch.testing.assert_close(got.float(), wanted, rtol=0.02, atol=0.01)


def int8_row(plain_of, rows):
    """Attention of int8 in rows whose cache `plain_of(keys, values)` changed, and what the specification gives."""
    site = site_of(2, 2, 64)
    case = make_case(rows, site, 32, kv_dtype=torch.int8)
    case.q.fill_(1.0)
    write_plain(case, 32)
    for row, length in enumerate(case.batch.seq_lens):
        positions = torch.arange(int(length))
        blocks, offsets = case.batch.block_tables[row, positions // 32], positions % 32
        keys, values = plain_of(case.plain[blocks, 0, offsets], case.plain[blocks, 1, offsets])
        case.plain[blocks, 0, offsets], case.plain[blocks, 1, offsets] = keys, values
    case.kv = pack(case.plain, torch.int8)
    backend = NativeAttentionBackend(AttentionContext(CPU, torch.float32, torch.int8, 32))
    got = backend.layer(site).forward(case.q, case.kv, backend.plan(case.batch))
    plain = decode(encode(case.plain, torch.int8), torch.int8, torch.float32)
    return got, reference_attention(case.q, plain, case.batch, site, 32)


@pytest.mark.parametrize("rows", [[(2999, 1)], [(2997, 3)]])
@pytest.mark.parametrize("place", [3, 1500, 2990])
def test_many_small_weights_of_int8_count_beside_a_large_one(isa, place, rows):
    """One key has nine tenths of the weight; what thousands of others share is a thirty-thousandth each."""

    def changed(keys, values):
        keys, values = keys * 0.01, torch.ones_like(values)
        keys[place], values[place] = 10.2 * 8 / 64, -1.0
        return keys, values

    got, wanted = int8_row(changed, rows)
    assert -0.9 < wanted.max() < -0.7
    torch.testing.assert_close(got, wanted, rtol=2e-3, atol=0)


@pytest.mark.parametrize("first", [-40, -12, 12, 30])
def test_values_of_int8_of_any_size(isa, first):
    """Sizes grow or fall from 10^first to 1 in the course of a row."""

    def changed(keys, values):
        return keys * 0.1, values.abs() * 10.0 ** torch.linspace(first, 0, len(values)).view(-1, 1, 1)

    got, wanted = int8_row(changed, [(2999, 1), (299, 1), (1200, 3)])
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=0)
