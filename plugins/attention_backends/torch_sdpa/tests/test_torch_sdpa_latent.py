"""Latent attention: absorbed, expanded and by definition are one, however a sequence is cut and wherever it lies."""

import numpy as np
import pytest
import torch
from core_plugin_torch_sdpa import latent as module
from core_plugin_torch_sdpa.backend import TorchSdpaBackend
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api.attention import AttentionContext, BatchView, LatentSite
from core.api.steps import StepShape

CPU = torch.device("cpu")
SITE = LatentSite(0, num_heads=3, latent_dim=12, rope_dim=4, key_dim=6, value_dim=5, scale=0.3)


class Bench:
    """One latent layer, sequences of random tokens, and what attention gives by definition."""

    def __init__(self, lengths, block_size=4, *, dtype=torch.float64, kv_dtype=None, site=SITE, seed=0):
        rng = torch.Generator().manual_seed(seed)

        def made(*shape):
            return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)

        self.site, self.size = site, block_size
        self.backend = TorchSdpaBackend(AttentionContext(CPU, dtype, kv_dtype or dtype, block_size))
        self.layer = self.backend.latent(site)
        self.key = made(site.num_heads, site.key_dim, site.latent_dim)
        self.value = made(site.num_heads, site.latent_dim, site.value_dim)
        self.layer.use_up(self.key, self.value)
        sizes = ((site.num_heads, site.key_dim), (site.num_heads, site.rope_dim), (site.latent_dim,), (site.rope_dim,))
        self.rows = [[made(length, *one) for one in sizes] for length in lengths]
        columns = -(-max(lengths) // block_size)
        blocks = torch.randperm(len(lengths) * columns, generator=rng).int() + 1
        self.tables = blocks.view(len(lengths), columns)
        layout = self.backend.latent_layout(site)
        self.kv = torch.zeros((len(blocks) + 1, *layout.block_shape), dtype=layout.dtype)
        if layout.dtype.is_floating_point:
            self.kv.normal_(std=50, generator=rng)  # what no token owns is never seen
        self.done = [0] * len(lengths)

    def step(self, counts, fixed=None):
        """Run further tokens of each row; return each row's result, `(tokens, heads * value_dim)`.

        Args:
            fixed: A plan to refresh for the step.
        """
        work = [(row, self.done[row], count) for row, count in enumerate(counts) if count]
        slots = []
        for row, start, count in work:
            self.done[row] = start + count
            positions = torch.arange(start, start + count)
            slots.append(self.tables[row, positions // self.size].long() * self.size + positions % self.size)
        new = [count for _, _, count in work]
        ends = [start + count for _, start, count in work]
        batch = BatchView(
            np.concatenate([[0], np.cumsum(new)]).astype(np.int32),
            np.array(ends, np.int32),
            self.tables[[row for row, _, _ in work]],
            torch.cat(slots),
            max(new),
            max(ends),
        )
        q, q_rope, latent, rope_key = (
            torch.cat([self.rows[row][part][start : start + count] for row, start, count in work]) for part in range(4)
        )
        if fixed is not None:
            self.backend.refresh(fixed, batch)
        plan = fixed or self.backend.plan(batch)
        self.layer.write(latent, rope_key, self.kv, plan)
        return self.layer.forward(q, q_rope, self.kv, plan).split(new)

    def due(self, row):
        """Return what a row's attention is by definition, `(tokens, heads * value_dim)` float64."""
        q, q_rope, latent, rope_key = (part.double() for part in self.rows[row])
        out = []
        for position in range(len(q)):
            seen = slice(0, position + 1)
            heads = []
            for head in range(self.site.num_heads):
                keys = torch.cat((latent[seen] @ self.key[head].double().T, rope_key[seen]), dim=1)
                scores = keys @ torch.cat((q[position, head], q_rope[position, head])) * self.site.scale
                heads.append(scores.softmax(0) @ (latent[seen] @ self.value[head].double()))
            out.append(torch.cat(heads))
        return torch.stack(out)


@pytest.fixture(params=["absorbed", "expanded", "as it chooses"])
def form(request, monkeypatch):
    if request.param != "as it chooses":
        monkeypatch.setattr(module, "EXPANDED_FROM", 10**6 if request.param == "absorbed" else 2)


@pytest.mark.covers("ATTN-08")
def test_every_form_is_attention_by_definition(form):
    bench = Bench((70, 64, 1, 5))
    for row, found in enumerate(bench.step((70, 64, 1, 5))):
        torch.testing.assert_close(found, bench.due(row), rtol=1e-10, atol=1e-10)


@pytest.mark.covers("ATTN-08")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    pieces=st.lists(
        st.lists(st.sampled_from([0, 1, 1, 3, 4, 5, 17, 66]), min_size=3, max_size=3), min_size=1, max_size=4
    ),
    block_size=st.sampled_from([1, 4, 16]),
    seed=st.integers(0, 99),
)
def test_any_pieces_of_any_rows_equal_the_definition(pieces, block_size, seed):
    steps = [counts for counts in pieces if any(counts)]
    if not steps:
        return
    lengths = [max(1, sum(row)) for row in zip(*steps)]
    bench = Bench(lengths, block_size, seed=seed)
    found = [[] for _ in lengths]
    for counts in steps:
        rows = [row for row, count in enumerate(counts) if count]
        for row, out in zip(rows, bench.step(counts), strict=True):
            found[row].append(out)
    for row, parts in enumerate(found):
        if parts:
            due = bench.due(row)[: bench.done[row]]
            torch.testing.assert_close(torch.cat(parts), due, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [3, 4, 5, 8, 9])
@pytest.mark.covers("ATTN-08")
def test_single_tokens_at_block_boundaries(length):
    bench = Bench((length,))
    bench.step((length - 1,))
    torch.testing.assert_close(bench.step((1,))[0], bench.due(0)[-1:], rtol=1e-10, atol=1e-10)


@pytest.mark.covers("ATTN-08")
def test_blocks_of_another_row_are_a_prefix():
    bench = Bench((12, 12))
    for part in range(2, 4):
        bench.rows[1][part][:8] = bench.rows[0][part][:8]
    bench.step((12, 0))
    bench.tables[1, :2] = bench.tables[0, :2]
    bench.done[1] = 8
    torch.testing.assert_close(bench.step((0, 4))[0], bench.due(1)[8:], rtol=1e-10, atol=1e-10)


def test_plans_that_stay_are_refreshed_for_latent_layers():
    bench = Bench((40, 9, 23))
    bench.step((35, 2, 20))
    plan = bench.backend.fixed_plan(StepShape(3, 3, 1, 40))
    for _ in range(3):
        for row, found in enumerate(bench.step((1, 1, 1), plan)):
            due = bench.due(row)[bench.done[row] - 1 : bench.done[row]]
            torch.testing.assert_close(found, due, rtol=1e-10, atol=1e-10)
    assert bench.done == [38, 5, 23]


def test_other_weights_are_used_at_once():
    bench = Bench((6,))
    bench.step((5,))
    bench.key, bench.value = bench.key * 2, bench.value - 1
    bench.layer.use_up(bench.key, bench.value)
    torch.testing.assert_close(bench.step((1,))[0], bench.due(0)[-1:], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("kv_dtype", "allowed"), [(torch.bfloat16, 0.02), (torch.int8, 0.02), (torch.float8_e4m3fn, 0.1)]
)
def test_narrow_caches_stay_close(kv_dtype, allowed):
    bench = Bench((80, 20), dtype=torch.float32, kv_dtype=kv_dtype)
    bench.step((79, 3))
    for row, found in zip((0, 1), bench.step((1, 17)), strict=True):
        due = bench.due(row)[-len(found) :].float()
        assert (found - due).abs().max() <= allowed * due.abs().max()


@pytest.mark.parametrize(
    ("dtype", "kv_dtype", "token"),
    [
        (torch.bfloat16, torch.bfloat16, (512 + 64) * 2),
        (torch.float32, torch.float32, (512 + 64) * 4),
        (torch.bfloat16, torch.float8_e4m3fn, 512 + 64),
        (torch.bfloat16, torch.int8, 512 + 64 + 2 * 4),
    ],
)
@pytest.mark.covers("ATTN-08")
def test_a_token_takes_its_latent_and_its_rotated_key(dtype, kv_dtype, token):
    site = LatentSite(0, num_heads=128, latent_dim=512, rope_dim=64, key_dim=128, value_dim=128, scale=0.1)
    layout = TorchSdpaBackend(AttentionContext(CPU, dtype, kv_dtype, 16)).latent_layout(site)
    assert layout.bytes_per_block == 16 * token
