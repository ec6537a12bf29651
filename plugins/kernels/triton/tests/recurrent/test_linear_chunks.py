"""Linear attention by chunks in the interpreter, against the reference form token by token in float64."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from core_plugin_kernels_triton.recurrent.attention import linear_attention
from core_plugin_kernels_triton.recurrent.inverse import inverse
from core_plugin_kernels_triton.recurrent.prompts import form_of
from core_plugin_kernels_triton.recurrent.rows import tiles
from torch.nn.functional import normalize

from core.api.states import State, StateRows
from core.ops.recurrent import linear_attention_by_token

TABLE = {"tokens": 64, "columns": 16, "values": 16, "warps": 4, "stages": 1, "step_warps": 4, "step_stages": 1}
TABLE |= {"scratch": 256, "tf32x3": 0}
HEADS, KEY_HEADS, KEY_DIM, VALUE_DIM = 4, 2, 21, 19
RAGGED = (1, 40, 0, 31, 32, 33, 7, 8, 65)
"""Around a chunk, 32 tokens of float32, and around the fewest tokens that go by chunks."""


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Let chunks of float32 have 32 tokens, and states more columns and rows than a tile."""
    monkeypatch.setitem(tiles(torch.device("cpu")), "chunks", TABLE)
    monkeypatch.setitem(tiles(torch.device("cpu")), "attention", {"fewest": 8, "values": 16})


def with_tiles(monkeypatch, **sizes):
    monkeypatch.setitem(tiles(torch.device("cpu")), "chunks", {**TABLE, **sizes})


def tokens(count, dtype=torch.float32):
    """Return queries, keys and values of tokens, with NaN behind each of them."""
    q, v = torch.randn(count, KEY_HEADS, KEY_DIM), torch.randn(count, HEADS, VALUE_DIM)
    k = normalize(torch.randn(count, KEY_HEADS, KEY_DIM), dim=-1)
    apart = [torch.full((count, one[0].numel() + 3), torch.nan, dtype=dtype) for one in (q, k, v)]
    return [wide[:, : one[0].numel()].view(one.shape).copy_(one) for wide, one in zip(apart, (q, k, v))]


def states(counts, fresh):
    """Return float32 states of rows; what is nobody's, and what counts as zeros, is NaN."""
    slots, fresh = torch.randperm(len(counts) + 1)[: len(counts)], torch.tensor(fresh)
    memory = torch.full((len(counts) + 1, HEADS, KEY_DIM, VALUE_DIM), torch.nan)
    memory[slots[fresh == 0]] = torch.randn(int((fresh == 0).sum()), HEADS, KEY_DIM, VALUE_DIM)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return State(memory, StateRows(slots, fresh, starts))


def check(counts, fresh, q, k, v, decay, beta, tolerance=2e-5):
    """Hold outputs and states to the reference, relative to the greatest number."""
    state = states(counts, fresh)
    exact = replace(state, memory=state.memory.double())
    due = linear_attention_by_token(q.double(), k.double(), v.double(), decay, beta, exact, 0.3)
    found = linear_attention(q, k, v, decay, beta, state, 0.3)
    for one, wanted in ((found, due), (state.memory, exact.memory)):
        assert torch.equal(one.isnan(), wanted.isnan())
        one, wanted = one.double().nan_to_num(0.0), wanted.nan_to_num(0.0)
        assert (one - wanted).abs().max() <= tolerance * max(1.0, wanted.abs().max())


@pytest.mark.covers("ATTN-11")
@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("per_key", [False, True])
@pytest.mark.parametrize("lost", [0.0, 0.1, 3.0, 30.0])
def test_ragged_rows_at_every_rate_of_decay(delta, per_key, lost):
    torch.manual_seed(0)
    count = sum(RAGGED)
    decay = -lost * torch.rand(count, HEADS, *(KEY_DIM,) * per_key)
    beta = torch.rand(count, HEADS) if delta else None
    check(RAGGED, [i % 2 for i in range(len(RAGGED))], *tokens(count), decay, beta)


@pytest.mark.parametrize("beta", [0.0, 1e-6, 1 - 1e-6, 1.0])
@pytest.mark.parametrize("apart", [1.0, 0.05])
def test_betas_at_their_ends_with_keys_that_are_alike(beta, apart):
    """Powers of the matrix that is inverted would be greater than its inverse by many orders."""
    torch.manual_seed(0)
    q, k, v = tokens(70)
    k.copy_(normalize(torch.ones(KEY_DIM) + apart * torch.randn(k.shape), dim=-1))
    check((70,), [0], q, k, v, torch.full((70, HEADS), -1e-3), torch.full((70, HEADS), beta), tolerance=1e-4)


def test_decays_that_differences_of_sums_could_not_tell_apart():
    """A token forgets everything, once, or more than float32 can count; behind it little is lost."""
    torch.manual_seed(0)
    decay = torch.full((70, HEADS), -1e-3)
    decay[5, 0], decay[5, 1], decay[40, 2] = -1e30, -torch.inf, -3000.0
    check((70,), [0], *tokens(70), decay, torch.rand(70, HEADS))
    by_key = torch.full((70, HEADS, KEY_DIM), -1e-3)
    by_key[:, :, ::2] = decay[:, :, None]
    by_key[20, :, 1] = -torch.inf
    check((70,), [0], *tokens(70), by_key, torch.rand(70, HEADS))


@pytest.mark.covers("ATTN-11")
@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("per_key", [False, True])
def test_windows_of_little_memory_go_on_from_each_other(monkeypatch, delta, per_key):
    """Windows of one chunk, which rows begin and end inside of, and a fresh row that a window cuts."""
    torch.manual_seed(0)
    with_tiles(monkeypatch, scratch=0)
    counts = (40, 3, 75, 9)
    beta = torch.rand(127, HEADS) if delta else None
    decay = -torch.rand(127, HEADS, *(KEY_DIM,) * per_key)
    check(counts, [0, 1, 1, 0], *tokens(127), decay, beta)


def test_pieces_of_a_row_are_its_whole():
    torch.manual_seed(0)
    given = (*tokens(80), -torch.rand(80, HEADS), torch.rand(80, HEADS))
    memory = {len(cuts): torch.zeros(1, HEADS, KEY_DIM, VALUE_DIM) for cuts in ([0, 80], [0, 33, 41, 80])}
    found = []
    for cuts in ([0, 80], [0, 33, 41, 80]):
        outs = []
        for begin, end in pairwise(cuts):
            rows = StateRows(torch.tensor([0]), torch.tensor([int(not begin)]), np.array([0, end - begin], np.int32))
            outs.append(linear_attention(*(one[begin:end] for one in given), State(memory[len(cuts)], rows), 0.3))
        found.append(torch.cat(outs))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(memory[2], memory[4], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("per_key", [False, True])
def test_short_types_round_once_for_each_product(monkeypatch, dtype, delta, per_key):
    """Operands are bfloat16 where activations are, so states differ by its rounding, however many tokens there are."""
    torch.manual_seed(0)
    with_tiles(monkeypatch, tokens=32)
    beta = torch.rand(150, HEADS) if delta else None
    decay = -0.1 * torch.rand(150, HEADS, *(KEY_DIM,) * per_key)
    check((150,), [0], *tokens(150, dtype), decay, beta, 2 * torch.finfo(dtype).eps)


@triton.jit
def inverse_kernel(x, y, CHUNK: tl.constexpr):
    line = tl.arange(0, CHUNK)
    at = line[:, None] * CHUNK + line[None, :]
    tl.store(y + at, inverse(tl.load(x + at), CHUNK, "ieee"))


@pytest.mark.parametrize("size", [16, 32, 64, 128])
@pytest.mark.parametrize("fill", [0.0, 0.3, 1.0])
def test_inverses(size, fill):
    """Of random numbers, and of ones, whose powers have numbers up to 1e37."""
    torch.manual_seed(0)
    among = (torch.full((size, size), fill) if fill == 1 else fill * torch.randn(size, size)).tril(-1)
    found = torch.empty_like(among)
    inverse_kernel[(1,)](among, found, CHUNK=size)
    due = torch.linalg.inv(torch.eye(size, dtype=torch.float64) + among.double())
    assert (found.double() - due).abs().max() <= 1e-4 * due.abs().max()


def test_tiles_shrink_with_wide_numbers_and_keys():
    table = {**TABLE, "values": 64, "columns": 64, "tf32x3": 1}
    small, wide = (form_of(table, dtype, 128, 128) for dtype in (torch.bfloat16, torch.float32))
    assert (small.chunk, small.values, small.precision) == (64, 64, "tf32x3")
    assert (wide.chunk, wide.values, wide.precision) == (32, 32, "ieee")
    assert form_of(table, torch.float16, 256, 128)[:3] == (16, 256, 16)
    assert form_of(table, torch.bfloat16, 5, 3)[1:4] == (16, 16, 16)
