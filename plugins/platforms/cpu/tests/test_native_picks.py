"""Native picked positions: pickers against index scores in float64, latent attention against what its queries see."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_cpu.native import attention as kernels
from core_plugin_torch_sdpa.elements import decode, encode

from core.api.attention import AttentionContext, PickSite

from .latents import filled, make_case, site_of, views

CPU = torch.device("cpu")
ROWS = ((300, 1), (0, 90), (100, 40), (0, 33), (45, 3), (0, 1), (60, 17), (130, 1), (20, 1))
"""Context and new tokens of rows that are shorter and longer than the picks, decoding and in pieces."""
PICKS = 48


def context(dtype, kv_dtype=None, block_size=32):
    return AttentionContext(CPU, dtype, kv_dtype or dtype, block_size)


@cache
def make_index(rows, site, dtype, seed=1):
    """Return index keys of each row, index queries and weights of the new tokens."""
    random = torch.Generator().manual_seed(seed)
    keys = [torch.randn(context + new, site.key_dim, generator=random).to(dtype) for context, new in rows]
    tokens = sum(new for _, new in rows)
    q = torch.randn(tokens, site.num_heads, site.key_dim, generator=random).to(dtype)
    return keys, q, torch.randn(tokens, site.num_heads, generator=random)


def scored(rows, site, dtype, kv_dtype):
    """Yield row, position and the scores of all positions that each new token may see, in float64."""
    keys, q, weights = make_index(rows, site, dtype)
    token = 0
    for row, (before, new) in enumerate(rows):
        kept = decode(encode(keys[row], kv_dtype), kv_dtype, torch.float64)
        for position in range(before, before + new):
            met = torch.relu(q[token].double() @ kept[: position + 1].T * site.scale)
            yield row, position, weights[token].double() @ met
            token += 1


def index_of(backend, site, rows, dtype, block_size=32):
    """Return a picker, a cache with all index keys and nothing sensible beside them, and the step's plan."""
    whole, step, blocks = views(rows, block_size)
    layout = backend.picker_layout(site)
    kv = torch.full((blocks * layout.bytes_per_block,), 0xFF, dtype=torch.uint8)
    kv, picker = kv.view(layout.dtype).view(blocks, *layout.block_shape), backend.picker(site)
    picker.write(torch.cat(make_index(rows, site, dtype)[0]), kv, backend.plan(whole))
    return picker, kv, backend.plan(step)


def check_picks(rows, site, dtype=torch.float32, kv_dtype=None, block_size=32):
    """Compare picks with scores: what is left out is no better than what is picked, but for what float32 rounds."""
    kv_dtype = kv_dtype or dtype
    backend = NativeAttentionBackend(context(dtype, kv_dtype, block_size))
    picker, kv, plan = index_of(backend, site, rows, dtype, block_size)
    _, q, weights = make_index(rows, site, dtype)
    picked = picker.forward(q, weights, kv, plan)
    assert picked.shape == (len(q), site.picks)
    for places, (_, position, scores) in zip(picked, scored(rows, site, dtype, kv_dtype), strict=True):
        seen = places[places >= 0].long()
        assert len(seen) == min(position + 1, site.picks)
        assert seen.tolist() == sorted(set(seen.tolist()))
        left = scores.scatter(0, seen, -torch.inf)
        if position >= site.picks:
            assert left.max() <= scores[seen].min() + 2e-5 * scores.abs().max()
    return picked


@pytest.mark.covers("ATTN-10")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "key_dim"), [(18, 32), (64, 128), (5, 20), (33, 64)])
def test_the_best_scores_are_picked(isa, heads, key_dim, dtype):
    check_picks(ROWS, PickSite(1, heads, key_dim, 0.3, PICKS), dtype)


@pytest.mark.covers("ATTN-10")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_dtype", list(kernels.CACHE_CODES))
@pytest.mark.parametrize("key_dim", [32, 52])
def test_index_keys_of_every_dtype(isa, key_dim, kv_dtype, dtype):
    check_picks(ROWS, PickSite(1, 18, key_dim, 0.3, PICKS), dtype, kv_dtype)


@pytest.mark.parametrize("block_size", [16, 48, 256])
@pytest.mark.parametrize("picks", [1, 8, 130])
def test_any_number_of_picks_and_blocks_of_any_size(block_size, picks):
    check_picks(ROWS, PickSite(1, 18, 32, 0.3, picks), torch.bfloat16, block_size=block_size)


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("rows", [((9000, 1),), ((4000, 1), (900, 1)), ((0, 3000),), ((2500, 70), (3000, 1))])
def test_long_rows_are_divided_among_threads(rows, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check_picks(rows, PickSite(1, 9, 32, 0.3, 600), torch.bfloat16)
    finally:
        torch.set_num_threads(before)


def test_equal_scores_fill_up_what_is_left(isa):
    """The last positions are the best; of the equal ones before them some are picked, each once."""
    rows, site = ((2500, 1),), PickSite(1, 4, 32, 1.0, 64)
    backend = NativeAttentionBackend(context(torch.float32))
    picker, kv, plan = index_of(backend, site, rows, torch.float32)
    whole, _, _ = views(rows, 32)
    keys = torch.ones(2501, 32)
    keys[-40:] = 2.0
    picker.write(keys, kv, backend.plan(whole))
    for weight, best in ((1.0, range(2461, 2501)), (0.0, ())):
        picked = picker.forward(torch.ones(1, 4, 32), torch.full((1, 4), weight), kv, plan)[0].tolist()
        assert len(set(picked)) == 64 and set(best) <= set(picked) and min(picked) >= 0


def test_rows_within_the_picks_are_not_scored():
    rows, site = ((10, 5), (40, 1)), PickSite(1, 4, 32, 1.0, PICKS)
    backend = NativeAttentionBackend(context(torch.float32))
    picker, kv, plan = index_of(backend, site, rows, torch.float32)
    _, q, weights = make_index(rows, site, torch.float32)
    assert picker.forward(q, weights, kv, plan) is None


def seen_alone(rows, site, dtype, kv_dtype, picked):
    """Attention of each new token to the positions that it sees, by keys and values of every head, in float64."""
    case, results, token = make_case(rows, site, dtype), [], 0
    for (before, new), kept in zip(rows, case.kept, strict=True):
        parts = kept.split([site.latent_dim, site.rope_dim], -1)
        latent, rotated = (decode(encode(one, kv_dtype), kv_dtype, torch.float32).double() for one in parts)
        keys = torch.cat(
            [torch.einsum("hkl,pl->hpk", case.key.double(), latent), rotated.expand(site.num_heads, -1, -1)], -1
        )
        values = torch.einsum("pl,hlv->hpv", latent, case.value.double())
        for position in range(before, before + new):
            places = (
                picked[token][picked[token] >= 0].long() if before + new > site.picks else torch.arange(position + 1)
            )
            q = torch.cat([case.q[token], case.q_rope[token]], -1).double()
            shares = (torch.einsum("hd,hpd->hp", q, keys[:, places]) * site.scale).softmax(-1)
            results.append(torch.einsum("hp,hpv->hv", shares, values[:, places]).flatten())
            token += 1
    return torch.stack(results)


def some_picks(rows, picks, seed=2):
    """Return random positions of each new token, in any order, with -1 among them where there are fewer."""
    random = torch.Generator().manual_seed(seed)
    found = []
    for before, new in rows:
        for position in range(before, before + new):
            places = torch.randperm(max(picks, position + 1), generator=random)
            places[places > position] = -1
            found.append(places[:picks])
    return torch.stack(found).int()


def check_attention(rows, sizes, dtype=torch.float32, kv_dtype=None, block_size=32, picks=PICKS):
    site, kv_dtype = replace(site_of(*sizes), picks=picks), kv_dtype or dtype
    case = make_case(rows, site, dtype)
    backend = NativeAttentionBackend(context(dtype, kv_dtype, block_size))
    layer = backend.latent(site)
    layer.use_up(case.key, case.value)
    kv, step, _ = filled(layer, backend, case, site, block_size)
    picked = some_picks(rows, picks)
    got = layer.forward_picked(case.q, case.q_rope, kv, backend.plan(step), picked)
    wanted = seen_alone(rows, site, dtype, kv_dtype, picked).float()
    tolerance = {"rtol": 1e-4, "atol": 2e-5} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.02}
    torch.testing.assert_close(got.float(), wanted, **tolerance)


@pytest.mark.covers("ATTN-10")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "sizes", [(3, 48, 16, 32, 24), (2, 20, 6, 10, 12), (16, 128, 64, 96, 32), (100, 32, 16, 16, 16)]
)
def test_queries_see_what_was_picked(isa, sizes, dtype):
    check_attention(ROWS, sizes, dtype)


@pytest.mark.covers("ATTN-10")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_dtype", list(kernels.CACHE_CODES))
@pytest.mark.parametrize("sizes", [(4, 64, 32, 32, 32), (3, 52, 12, 33, 24)])
def test_latents_of_every_dtype(isa, sizes, kv_dtype, dtype):
    check_attention(ROWS, sizes, dtype, kv_dtype)


@pytest.mark.parametrize("block_size", [16, 48, 256])
@pytest.mark.parametrize("picks", [1, 8, 130])
def test_latents_of_any_number_of_picks(block_size, picks):
    check_attention(ROWS, (3, 48, 16, 32, 24), torch.bfloat16, block_size=block_size, picks=picks)


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("rows", [((4000, 1),), ((3000, 1), (900, 1)), ((0, 700), (2000, 1))])
def test_picks_are_divided_among_threads(rows, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check_attention(rows, (4, 64, 32, 32, 48), torch.bfloat16, picks=600)
    finally:
        torch.set_num_threads(before)


def test_what_is_none_of_the_row_is_refused():
    site = replace(site_of(2, 32, 16, 16, 16), picks=4)
    case = make_case(((20, 3), (9, 1)), site, torch.float32)
    backend = NativeAttentionBackend(context(torch.float32))
    layer = backend.latent(site)
    layer.use_up(case.key, case.value)
    kv, step, _ = filled(layer, backend, case, site, 32)
    plan, picked = backend.plan(step), some_picks(((20, 3), (9, 1)), 4)
    layer.forward_picked(case.q, case.q_rope, kv, plan, picked)
    for token, place, told in ((1, 22, "22 for token 1, at position 21"), (3, -2, "-2 for token 3, at position 9")):
        wrong = picked.clone()
        wrong[token, 2] = place
        with pytest.raises(IndexError, match=told):
            layer.forward_picked(case.q, case.q_rope, kv, plan, wrong)
    for wrong in (picked[:3], picked.long(), picked[:, :3]):
        with pytest.raises(ValueError, match="do not fit"):
            layer.forward_picked(case.q, case.q_rope, kv, plan, wrong)
    picker = backend.picker(PickSite(1, 4, 32, 1.0, 4))
    with pytest.raises(ValueError, match="do not fit"):
        picker.write(torch.zeros(4, 31), torch.zeros(5, 32, 32), plan)
    with pytest.raises(ValueError, match="do not fit"):
        picker.forward(torch.zeros(4, 4, 32), torch.zeros(4, 4).double(), torch.zeros(5, 32, 32), plan)
