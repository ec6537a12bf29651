"""Latent attention and picks in the interpreter, by their definitions in float64; what no token owns is no number."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from core_plugin_kernels_triton.attention.backend import TritonBackend
from core_plugin_kernels_triton.latent.expand import expanded_rows, is_expanded
from core_plugin_kernels_triton.latent.form import form_of

from core.api.attention import AttentionContext, BatchView, LatentSite, PickSite

CPU = torch.device("cpu")
SMALL = {
    "split": 16,
    "splits": 4,
    "stored": 8,
    "attend": [{"bytes": 65536, "m": 16, "n": 16, "warps": 1, "stages": 1}],
    "expand": [{"bytes": 65536, "m": 16, "n": 8, "warps": 1, "stages": 1}],
    "fewest": 9,
    "piece": 12,
    "scores": {"n": 16, "warps": 1, "stages": 1},
}
TOLERANCE = {torch.float32: 3e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr("core_plugin_kernels_triton.latent.form.sizes", lambda part, names: SMALL)


def rounded(x, kv_dtype, scale=1.0):
    return ((x.float() / scale).to(kv_dtype).float() * scale).to(x.dtype)


@dataclass
class Step:
    """One step over a cache with history: `(context, new)` of each row."""

    rows: list
    size: int
    tables: np.ndarray
    slots: list

    @property
    def batch(self):
        counts, lengths = [new for _, new in self.rows], [sum(row) for row in self.rows]
        return BatchView(
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            np.array(lengths, dtype=np.int32),
            torch.from_numpy(self.tables),
            torch.cat(
                [*(slots[context:] for slots, (context, _) in zip(self.slots, self.rows)), torch.empty(0)]
            ).long(),
            max(counts, default=0),
            max(lengths, default=0),
        )

    def cache(self, layout, kept, kv_dtype, scale=1.0):
        """Return a cache with what rows keep of their context; all else is NaN, or infinity."""
        blocks = int(self.tables.max(initial=0)) + 2
        if layout.dtype == torch.uint8:
            kv = torch.full((blocks, *layout.block_shape), 0x7F, dtype=torch.uint8)
        else:
            kv = torch.full((blocks, *layout.block_shape), torch.nan, dtype=layout.dtype)
            kv[::2] = torch.inf
        flat = kv.view(-1, kv.shape[2])
        for slots, (context, _), one in zip(self.slots, self.rows, kept):
            held = (one[:context].float() / scale).to(kv_dtype)
            flat[slots[:context]] = held.view(torch.uint8) if layout.dtype == torch.uint8 else held
        return kv

    def tokens(self):
        """Yield token, row, position."""
        token = 0
        for row, (context, new) in enumerate(self.rows):
            for place in range(context, context + new):
                yield token, row, place
                token += 1


def step_of(rows, size):
    rng = np.random.default_rng(0)
    blocks = [-(-sum(row) // size) for row in rows]
    order = rng.permutation(np.arange(1, sum(blocks) + 2))
    tables = np.full((len(rows), max(blocks, default=0) + 2), order[-1], dtype=np.int32)
    slots, taken = [], 0
    for row, count in enumerate(blocks):
        tables[row, :count] = order[taken : taken + count]
        taken += count
        places = np.arange(sum(rows[row]))
        slots.append(torch.from_numpy(tables[row, places // size].astype(np.int64) * size + places % size))
    return Step(rows, size, tables, slots)


def check(rows, *, heads=3, sizes=(20, 6, 10, 7), size=4, dtype=torch.float32, kv_dtype=None, picks=None, scale=1.0):
    """Hold a layer to its definition; with `picks`, of random positions. What is kept is of the size of `scale`."""
    torch.manual_seed(0)
    kv_dtype, step = kv_dtype or dtype, step_of(rows, size)
    latent_dim, rope_dim, key_dim, value_dim = sizes
    site = LatentSite(0, heads, *sizes, (key_dim + rope_dim) ** -0.5, picks)
    backend = TritonBackend(AttentionContext(CPU, dtype, kv_dtype, size))
    layer, layout, plan = backend.latent(site), backend.latent_layout(site), backend.plan(step.batch)
    key = (torch.randn(heads, key_dim, latent_dim) * latent_dim**-0.5).to(dtype)
    value = (torch.randn(heads, latent_dim, value_dim) * latent_dim**-0.5).to(dtype)
    layer.use_up(key, value)
    layer.use_scales(torch.tensor(scale), torch.tensor(scale))
    kept = [(torch.randn(sum(row), latent_dim + rope_dim) * scale).to(dtype) for row in rows]
    kv = step.cache(layout, kept, kv_dtype, scale)
    new = torch.cat([*(one[context:] for one, (context, _) in zip(kept, rows)), torch.empty(0, latent_dim + rope_dim)])
    latent, rotated = new.to(dtype).split_with_sizes((latent_dim, rope_dim), dim=1)
    layer.write(latent, rotated, kv, plan)
    q = (torch.randn(len(new), heads, key_dim + rope_dim) / scale).to(dtype)
    plain, turned = q.split_with_sizes((key_dim, rope_dim), dim=2)
    due = torch.zeros(len(new), heads, value_dim, dtype=torch.float64)
    picked = torch.full((len(new), picks or 1), -1, dtype=torch.int32)
    for token, row, place in step.tokens():
        seen = torch.arange(place + 1)
        if picks is not None:
            seen = torch.randperm(place + 1)[:picks]
            picked[token, torch.randperm(picks)[: len(seen)]] = seen.int()
        held = rounded(kept[row], kv_dtype, scale).double()[seen]
        for head in range(heads):
            keys = torch.cat([held[:, :latent_dim] @ key[head].double().T, held[:, latent_dim:]], 1)
            shares = torch.softmax(keys @ q[token, head].double() * site.scale, 0)
            due[token, head] = shares @ (held[:, :latent_dim] @ value[head].double())
    if picks is None:
        found = layer.forward(plain, turned, kv, plan)
    else:
        found = layer.forward_picked(plain, turned, kv, plan, picked)
    assert found.dtype == dtype and found.shape == (len(new), heads * value_dim)
    torch.testing.assert_close(found.double() / scale, due.flatten(1) / scale, rtol=0, atol=TOLERANCE[dtype])


MIXED = [(0, 19), (37, 1), (0, 1), (12, 9), (70, 3), (15, 8), (5, 0)]


@pytest.mark.covers("ATTN-08")
def test_prompts_pieces_and_splits():
    check(MIXED)


PROMPTS = [(37, 1), (0, 19), (3, 25), (12, 9), (0, 30), (5, 0), (30, 11), (9, 2)]
"""The second, third and fifth are expanded, in two and three pieces."""


@pytest.mark.covers("ATTN-08")
@pytest.mark.parametrize("kv_dtype", [torch.float32, torch.float8_e4m3fn], ids=str)
def test_expanded_prompts_among_absorbed_rows(kv_dtype):
    counts, lengths = np.array([new for _, new in PROMPTS]), np.array([sum(row) for row in PROMPTS])
    context = AttentionContext(CPU, torch.float32, kv_dtype, 4)
    form = form_of(LatentSite(0, 3, 20, 6, 10, 7, 0.25), context)
    assert expanded_rows(counts, lengths, form).tolist() == [1, 2, 4]
    check(PROMPTS, kv_dtype=kv_dtype)


def test_a_row_is_expanded_where_that_takes_fewer_products():
    """The rule as it is stated, on the host and in the kernel."""
    latent, rope, key, value = 32, 8, 16, 16
    site = LatentSite(0, 1, latent, rope, key, value, 0.25)
    form = form_of(site, AttentionContext(CPU, torch.float32, torch.float32, 4))
    rng = np.random.default_rng(0)
    counts, cached = rng.integers(1, 40, 200), rng.integers(0, 60, 200)
    pairs = counts * cached + counts * (counts + 1) // 2
    absorbed = pairs * (2 * latent + rope) + counts * latent * (key + value)
    expanded = pairs * (key + rope + value) + (cached + counts) * latent * (key + value)
    due = (expanded < absorbed) & (counts >= 9)
    assert 20 < due.sum() < 180
    assert expanded_rows(counts, counts + cached, form).tolist() == np.flatnonzero(due).tolist()
    found = torch.zeros(200, dtype=torch.int32)
    given = [torch.from_numpy(one).int() for one in (counts, counts + cached)]
    rule_kernel[(200,)](*given, found, LATENT_DIM=latent, KEY_DIM=key, VALUE_DIM=value, FEWEST=9)
    assert torch.equal(found.bool(), torch.from_numpy(due))


@triton.jit
def rule_kernel(
    counts,
    lengths,
    out,
    LATENT_DIM: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    FEWEST: tl.constexpr,
):
    row = tl.program_id(0)
    count, length = tl.load(counts + row), tl.load(lengths + row)
    tl.store(out + row, is_expanded(count, length, LATENT_DIM, KEY_DIM, VALUE_DIM, FEWEST).to(tl.int32))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_short_types_are_expanded(dtype):
    check([(0, 30), (3, 25)], dtype=dtype)


@pytest.mark.parametrize("rows", [[(0, 1)], [(16, 1), (63, 1), (64, 1)], [(0, 9)], []], ids=str)
def test_rows_at_the_edges(rows):
    check(rows)


@pytest.mark.parametrize("heads, sizes", [(1, (16, 8, 64, 80)), (17, (33, 5, 3, 2)), (40, (20, 6, 10, 7))])
def test_sizes(heads, sizes):
    check([(9, 2), (0, 9)], heads=heads, sizes=sizes, size=3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_short_types(dtype):
    check([(20, 1), (0, 11)], dtype=dtype)


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_short_caches(kv_dtype):
    check([(20, 1), (0, 11)], kv_dtype=kv_dtype)


@pytest.mark.parametrize("picks", [1, 5, 24])
def test_picked_positions(picks):
    check(MIXED, picks=picks)


@pytest.mark.covers("ATTN-08")
@pytest.mark.parametrize("scale", [2000.0, 0.003])
@pytest.mark.parametrize("kv_dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize(
    ("rows", "picks"), [(MIXED, None), (PROMPTS, None), (MIXED, 5)], ids=["mixed", "long", "picks"]
)
def test_scales_of_latents(rows, picks, kv_dtype, scale):
    check(rows, picks=picks, kv_dtype=kv_dtype, scale=scale)


def test_a_row_gives_the_same_beside_others():
    """Bit for bit, with up-projections by which torch's products are exact."""
    torch.manual_seed(0)
    site = LatentSite(0, 2, 16, 8, 16, 16, 0.25)
    backend = TritonBackend(AttentionContext(CPU, torch.float32, torch.float32, 4))
    layer = backend.latent(site)
    layer.use_up(*(torch.eye(16).expand(2, 16, 16).contiguous() for _ in range(2)))
    kept, q, rope = torch.randn(70, 24), torch.randn(1, 2, 16), torch.randn(1, 2, 8)
    found = []
    for others in ([], [(3, 1), (200, 1), (0, 20)]):
        step = step_of([(69, 1), *others], 4)
        rest = [torch.randn(sum(row), 24) for row in others]
        kv = step.cache(backend.latent_layout(site), [kept, *rest], torch.float32)
        plan = backend.plan(step.batch)
        new = torch.cat([one[context:] for one, (context, _) in zip([kept, *rest], step.rows)])
        layer.write(new[:, :16], new[:, 16:], kv, plan)
        given = [torch.cat([one, torch.randn(len(new) - 1, 2, one.shape[2])]) for one in (q, rope)]
        found.append(layer.forward(*given, kv, plan)[0])
    assert torch.equal(*found)


@pytest.mark.covers("ATTN-10")
@pytest.mark.parametrize("kv_dtype", [torch.float32, torch.float8_e4m3fn], ids=str)
def test_picks_are_the_best_scores(kv_dtype):
    torch.manual_seed(0)
    site, step = PickSite(1, 5, 12, 0.3, 6), step_of(MIXED, 4)
    backend = TritonBackend(AttentionContext(CPU, torch.float32, kv_dtype, 4))
    picker, plan = backend.picker(site), backend.plan(step.batch)
    kept = [torch.randn(sum(row), 12) for row in MIXED]
    kv = step.cache(backend.picker_layout(site), kept, kv_dtype)
    new = torch.cat([one[context:] for one, (context, _) in zip(kept, MIXED)])
    picker.write(new, kv, plan)
    q, weights = torch.randn(len(new), 5, 12), torch.randn(len(new), 5)
    picked = picker.forward(q, weights, kv, plan)
    for token, row, place in step.tokens():
        keys = rounded(kept[row], kv_dtype).double()[: place + 1]
        met = torch.relu(q[token].double() @ keys.T * site.scale)
        scores = weights[token].double() @ met
        best = scores.topk(min(6, place + 1)).values
        mine = [one for one in picked[token].tolist() if one >= 0]
        assert len(set(mine)) == len(best) and len(picked[token]) == 6
        torch.testing.assert_close(scores[mine].sort(descending=True).values, best, rtol=0, atol=1e-5)


def test_rows_within_the_picks_see_everything():
    step = step_of([(3, 2)], 4)
    backend = TritonBackend(AttentionContext(CPU, torch.float32, torch.float32, 4))
    picker = backend.picker(PickSite(1, 2, 4, 1.0, 5))
    assert (
        picker.forward(torch.randn(2, 2, 4), torch.randn(2, 2), torch.zeros(3, 4, 4), backend.plan(step.batch)) is None
    )
