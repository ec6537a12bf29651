"""Linear attention in chunks equals that token by token, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core.api.states import State, StateRows
from core.ops import chunks, recurrent

GEN = torch.Generator().manual_seed(5)
LENGTHS = [chunks.FEWEST, 1, 0, 16, 17, chunks.FEWEST - 1, 64, 65, 130]


def normal(*shape):
    return torch.randn(*shape, generator=GEN, dtype=torch.float64)


def compare(lengths, decay, delta, state_dtype=torch.float64, bound=1e-12):
    """Rows on slots in any order, every second one fresh; what is nobody's state is NaN."""
    tokens, count = sum(lengths), len(lengths)
    q, k, v = normal(tokens, 2, 8), torch.nn.functional.normalize(normal(tokens, 2, 8), dim=-1), normal(tokens, 4, 6)
    beta = torch.rand(tokens, 4, generator=GEN, dtype=torch.float64) if delta else None
    slots, fresh = torch.randperm(count + 2, generator=GEN)[:count], torch.arange(count) % 2
    memory = torch.full((count + 2, 4, 8, 6), float("nan"), dtype=torch.float64)
    memory[slots[fresh == 0]] = normal(int((fresh == 0).sum()), 4, 8, 6)
    rows = StateRows(slots, fresh, np.cumsum([0, *lengths], dtype=np.int32))
    exact, state = State(memory.clone(), rows), State(memory.to(state_dtype), rows)
    wanted = recurrent.linear_attention(q, k, v, decay, beta, exact, 0.3)
    got = chunks.linear_attention(*(one.to(state_dtype) for one in (q, k, v)), decay, beta, state, 0.3)
    torch.testing.assert_close(got.double(), wanted, rtol=bound, atol=bound)
    torch.testing.assert_close(state.memory.double(), exact.memory, rtol=bound, atol=bound, equal_nan=True)


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("each", [(), (8,)])
def test_rows_of_any_length(delta, each):
    decay = -normal(sum(LENGTHS), 4, *each).abs() * normal(4, *each).abs()
    compare(LENGTHS, decay, delta)
    compare(LENGTHS, decay, delta, torch.float32, 2e-5)
    compare([1, 3], decay[:4], delta)
    compare([], decay[:0], delta)


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("each", [(), (8,)])
def test_whatever_decays(delta, each):
    """Nothing, all at once, or more than exponents reach."""
    speeds = torch.tensor([0.0, -1e-3, -6.0, -40.0, -400.0, -1e4, -torch.inf], dtype=torch.float64)
    for some in (speeds, speeds[:1], speeds[[0, 2]], speeds[[4, 5]]):
        decay = some[torch.randint(len(some), (100, 4, *each), generator=GEN)]
        compare([70, 30], decay, delta)
        compare([70, 30], decay, delta, torch.float32, 2e-5)
