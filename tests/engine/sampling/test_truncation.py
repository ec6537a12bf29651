"""The support of top-k, top-p and min-p, against sets computed by definition."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.ops import truncation
from core.ops.truncation import cutoffs


def support(values, top_k, top_p, min_p):
    """Ids that stay, by sorting everything in float64."""
    values = values.astype(np.float64)
    order = np.argsort(-values, kind="stable")
    if top_k:
        order = order[:top_k]
    probability = np.exp(values[order] - values[order].max())
    probability /= probability.sum()
    if top_p < 1:
        before = np.cumsum(probability) - probability
        order, probability = order[before < top_p], probability[before < top_p]
    return set(order[probability >= min_p * probability[0]].tolist())


def kept(logits, *rows):
    top_k, top_p, min_p = zip(*rows)
    low = cutoffs(
        logits,
        torch.tensor(top_k)[:, None],
        torch.tensor(top_p, dtype=torch.float32)[:, None],
        torch.tensor(min_p, dtype=torch.float32)[:, None],
    )
    return [set(np.flatnonzero(row).tolist()) for row in (logits >= low).numpy()]


def distinct(rows, vocab, seed, spread=2.0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(rows, vocab)).astype(np.float32) * spread)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2, 5, 100, 200, 3000, 10**6]),
            st.sampled_from([1.0, 0.97531, 0.51234, 0.1111, 1e-4]),
            st.sampled_from([0.0, 0.01234, 0.3456]),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 50),
    st.sampled_from([0.1, 2.0, 8.0]),
)
def test_support_is_exact(rows, seed, spread):
    logits = distinct(len(rows), 2500, seed, spread)
    got = kept(logits, *rows)
    for values, params, mine in zip(logits.numpy(), rows, got):
        wanted = support(values, *params)
        # float32 sums may put the boundary one token further in a support of thousands.
        assert len(mine ^ wanted) <= (0 if len(wanted) < 1000 else 1)


@pytest.mark.parametrize("widths", [(4,), (4, 16), (50,)])
def test_every_width_gives_the_same_support(widths, monkeypatch):
    logits = distinct(4, 50, 3)
    rows = [(3, 1.0, 0.0), (7, 0.8, 0.0), (0, 0.95, 0.0), (20, 0.5, 0.05)]
    wanted = kept(logits, *rows)
    monkeypatch.setattr(truncation, "WIDTHS", widths)
    assert kept(logits, *rows) == wanted


def test_equal_values_at_the_boundary_all_stay():
    logits = torch.zeros(3, 300)
    logits[:, 7] = 1.0
    logits[1, 100:] = -5.0
    got = kept(logits, (2, 1.0, 0.0), (50, 1.0, 0.0), (1, 1.0, 0.0))
    assert got == [set(range(300)), set(range(100)), {7}]


def test_masked_tokens_stay_masked_without_a_full_sort(monkeypatch):
    widths = []
    select = truncation._selected
    monkeypatch.setattr(truncation, "_selected", lambda *args: widths.append(args[-1]) or select(*args))
    logits = torch.full((1, 5000), float("-inf"))
    logits[0, [5, 9]] = torch.tensor([1.0, 2.0])
    low = cutoffs(logits, torch.tensor([[50]]), torch.tensor([[0.99999]]), torch.tensor([[0.0]]))
    assert (logits.softmax(-1).masked_fill(logits < low, 0) > 0).nonzero()[:, 1].tolist() == [5, 9]
    assert widths == [truncation.WIDTHS[0]]


def test_a_row_without_truncation_keeps_everything():
    assert kept(distinct(2, 30, 0), (0, 1.0, 0.0), (1, 1.0, 0.0))[0] == set(range(30))
