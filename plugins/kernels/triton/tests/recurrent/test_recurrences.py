"""Recurrences in the interpreter, against the reference forms in float64; slots that are nobody's are no numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from core_plugin_kernels_triton.recurrent.attention import linear_attention
from core_plugin_kernels_triton.recurrent.conv import causal_conv
from core_plugin_kernels_triton.recurrent.rows import tiles
from core_plugin_kernels_triton.recurrent.scan import gated_recurrence, selective_scan
from torch.nn.functional import normalize

from core.api.states import State, StateRows
from core.ops import recurrent as reference

LAUNCH = {"warps": 4, "stages": 1, "step_warps": 4, "step_stages": 1}
SMALL = {
    "conv": {"tokens": 4, "channels": 4},
    "attention": {"fewest": 8, "values": 16},
    "chunks": {"tokens": 32, "columns": 16, "values": 16, "scratch": 256, "tf32x3": 0} | LAUNCH,
    "scan": {"tile": 16, "chunk": 4, "fewest": 8, "chunked": 64},
    "gated": {"channels": 4},
}
COUNTS = [(3, 1, 0, 21, 2, 35), (1, 1, 1), (9,), (8, 7)]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Let kernels have tiles that are smaller than the arguments of these tests."""
    for kernel, sizes in SMALL.items():
        monkeypatch.setitem(tiles(torch.device("cpu")), kernel, sizes)


def state_of(counts, shape, dtype=torch.float32):
    """Return states of rows, every other one fresh; what is nobody's, or counts as zeros, is NaN or infinity."""
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    slots, fresh = torch.randperm(len(counts) + 2)[: len(counts)], torch.arange(len(counts)) % 2
    memory = torch.full((len(counts) + 2, *shape), torch.nan, dtype=dtype)
    memory[0] = torch.inf
    held = slots[fresh == 0]
    memory[held] = torch.randn(len(held), *shape).to(dtype)
    return State(memory, StateRows(slots, fresh, starts))


def check(form, due_form, counts, shape, given, *more, dtype=torch.float32, kept=torch.float32, rtol=1e-5):
    """Hold outputs and states to the reference in float64; what rows do not touch stays as it is."""
    state = state_of(counts, shape, kept)
    wide = replace(state, memory=state.memory.double())
    found = form(*given, state, *more)
    due = due_form(*(None if one is None else one.double() for one in given), wide, *more)
    assert found.dtype == dtype and found.shape == due.shape
    coarse = max(torch.finfo(dtype).eps, rtol)
    torch.testing.assert_close(found.double(), due, rtol=coarse, atol=4 * coarse)
    stored = max(torch.finfo(kept).eps, rtol)
    torch.testing.assert_close(state.memory.double(), wide.memory, rtol=stored, atol=4 * stored, equal_nan=True)


def apart(x):
    """Return the same numbers in rows with NaN between them."""
    wide = torch.full((len(x) + 1, x[0].numel() + 5), torch.nan, dtype=x.dtype)
    return wide[:-1, 2 : 2 + x[0].numel()].view(x.shape).copy_(x)


@pytest.mark.covers("ATTN-11")
@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("width, biased, activated", [(4, True, True), (2, False, False), (5, False, True)])
def test_convolutions(counts, width, biased, activated):
    torch.manual_seed(0)
    tokens, channels = sum(counts), 7
    given = (
        apart(torch.randn(tokens, channels)),
        torch.randn(channels, width),
        torch.randn(channels) if biased else None,
    )
    check(causal_conv, reference.causal_conv, counts, (channels, width - 1), given, activated)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_convolutions_of_short_types(dtype):
    torch.manual_seed(0)
    given = torch.randn(11, 6).to(dtype), torch.randn(6, 4).to(dtype), None
    check(causal_conv, reference.causal_conv, (1, 10), (6, 3), given, True, dtype=dtype, kept=dtype)


@pytest.mark.covers("ATTN-11")
@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("per_key, delta", [(False, True), (False, False), (True, True), (True, False)])
def test_linear_attention(counts, per_key, delta):
    torch.manual_seed(0)
    tokens, heads, key_heads, key_dim, value_dim = sum(counts), 4, 2, 5, 18
    q = apart(torch.randn(tokens, key_heads, key_dim))
    k = apart(normalize(torch.randn(tokens, key_heads, key_dim), dim=-1))
    v = apart(torch.randn(tokens, heads, value_dim))
    decay = -torch.rand(tokens, heads, *(key_dim,) * per_key) * 3
    given = q, k, v, decay, torch.rand(tokens, heads) if delta else None
    form = reference.linear_attention_by_token
    check(linear_attention, form, counts, (heads, key_dim, value_dim), given, 0.4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_linear_attention_of_short_types(dtype):
    torch.manual_seed(0)
    q, k = (normalize(torch.randn(20, 1, 16), dim=-1).to(dtype) for _ in range(2))
    given = q, k, torch.randn(20, 2, 16).to(dtype), -torch.rand(20, 2), torch.rand(20, 2)
    form = reference.linear_attention_by_token
    # Chunks multiply in that type.
    check(linear_attention, form, (1, 19), (2, 16, 16), given, 0.25, dtype=dtype, rtol=torch.finfo(dtype).eps)


def test_what_forgets_everything_at_once():
    """Decays far beyond what differences of sums could tell apart, and infinite ones."""
    torch.manual_seed(0)
    decay = torch.full((24, 1), -0.01)
    decay[5], decay[13] = -1e30, -torch.inf
    q, k = (normalize(torch.randn(24, 1, 4), dim=-1) for _ in range(2))
    form = reference.linear_attention_by_token
    check(linear_attention, form, (24,), (1, 4, 6), (q, k, torch.randn(24, 1, 6), decay, torch.rand(24, 1)), 1.0)


def test_an_infinite_value_stays_where_it_is():
    """In a row of few tokens other columns, and keys that are not there, do not see it."""
    torch.manual_seed(0)
    q, k, v = torch.rand(3, 1, 5) + 1, normalize(torch.rand(3, 1, 5) + 1, dim=-1), torch.randn(3, 1, 4)
    v[1, 0, 2] = torch.inf
    state = State(torch.zeros(1, 1, 5, 4), rows_of(3, fresh=1))
    found = linear_attention(q, k, v, torch.full((3, 1), -0.1), None, state, 1.0)
    assert (found[1:, :, 2] == torch.inf).all() and found.isfinite().sum() == 10


@pytest.mark.covers("ATTN-11")
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_scans(counts):
    torch.manual_seed(0)
    tokens, channels, size = sum(counts), 7, 5
    given = apart(torch.randn(tokens, channels)), torch.rand(tokens, channels), -torch.rand(channels, size) * 4
    given = *given, *(apart(torch.randn(tokens, size)) for _ in range(2))
    check(selective_scan, reference.selective_scan, counts, (channels, size), given)
    given = apart(torch.randn(tokens, channels)), -torch.rand(tokens, channels)
    check(gated_recurrence, reference.gated_recurrence, counts, (channels,), given)


def test_a_scan_in_pieces_is_that_of_the_whole():
    """A state is the same behind a chunk and behind a piece, whatever was left over; what forgets all, forgets it."""
    torch.manual_seed(0)
    x, b, c = torch.randn(30, 3), torch.randn(30, 5), torch.randn(30, 5)
    step, a = torch.rand(30, 3), -torch.rand(3, 5) * 4
    step[11], x[11] = 1e30, 0
    whole, pieces = (State(torch.zeros(1, 3, 5), None) for _ in range(2))
    due = selective_scan(x, step, a, b, c, replace(whole, rows=rows_of(30, fresh=1)))
    found = []
    for begin, end in ((0, 9), (9, 10), (10, 22), (22, 30)):
        of = slice(begin, end)
        state = replace(pieces, rows=rows_of(end - begin, fresh=int(begin == 0)))
        found.append(selective_scan(x[of], step[of], a, b[of], c[of], state))
    torch.testing.assert_close(torch.cat(found), due, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(pieces.memory, whole.memory, rtol=1e-5, atol=1e-5)


def rows_of(count, fresh):
    """Return one row of so many tokens, in the first slot."""
    return StateRows(torch.tensor([0]), torch.tensor([fresh]), np.array([0, count], dtype=np.int32))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_scans_of_short_types(dtype):
    torch.manual_seed(0)
    given = torch.randn(21, 4).to(dtype), torch.rand(21, 4), -torch.rand(4, 6)
    given = *given, *(torch.randn(21, 6).to(dtype) for _ in range(2))
    check(selective_scan, reference.selective_scan, (1, 20), (4, 6), given, dtype=dtype)


def test_no_rows():
    nothing = torch.empty(0, 3)
    state = state_of((), (3,))
    assert gated_recurrence(nothing, nothing, state).shape == (0, 3)
    assert causal_conv(nothing, torch.ones(3, 2), None, state_of((), (3, 1)), False).shape == (0, 3)
