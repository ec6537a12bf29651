"""Choosing tokens in the interpreter, beside the reference forms and the draws of the host processor."""

import numpy as np
import pytest
import torch
from core_plugin_cpu.native import library
from core_plugin_cpu.native import sampling as native
from core_plugin_kernels_triton.ops import sampling

from core.ops import argmax, draw

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NEVER = float("-inf")
TRUNCATIONS = {
    "plain": {},
    "top-k": {"top_k": 5},
    "top-p": {"top_p": 0.7},
    "min-p": {"min_p": 0.1},
    "top-k and top-p": {"top_k": 9, "top_p": 0.8},
    "all": {"top_k": 20, "top_p": 0.95, "min_p": 0.02},
    "the best": {"top_k": 1},
    "as many as there are": {"top_k": 1000, "top_p": 1.0},
    "min-p of one": {"min_p": 1.0},
}


def numbers(count, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=0):
    made = torch.empty(5, count, dtype=torch.float64)
    for row, value in zip(made, (temperature, top_k, top_p, min_p)):
        row[:] = value
    made[4] = torch.from_numpy(np.random.default_rng(seed).random(count))
    return made


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_argmax_is_the_first_of_the_best(values, apart, dtype):
    for rows, size in ((1, 1), (3, 2), (2, 31), (3, 32), (2, 33), (2, 100), (0, 7)):
        logits = (values(rows, size).mul(2).round() / 2).to(dtype)  # with equal values
        due = argmax(logits)
        for given in (logits, apart(logits)):
            assert all(map(torch.equal, sampling.argmax(given), due))


def test_equal_values_in_other_sections_come_second():
    for place in (0, 15, 16, 31, 32, 63, 95):
        logits = torch.full((1, 96), -2.0)
        logits[0, place:] = 1.5
        assert sampling.argmax(logits)[1].tolist() == [place]


def test_rows_without_a_best_value():
    logits = torch.full((4, 70), NEVER)
    logits[1, 69] = -5.0
    logits[2, 40], logits[2, 3] = float("nan"), float("inf")
    logits[3, 50] = float("inf")
    best, places = sampling.argmax(logits)
    torch.testing.assert_close(best, torch.tensor([NEVER, -5.0, float("nan"), float("inf")]), equal_nan=True)
    assert places[[0, 1, 3]].tolist() == [0, 69, 50] and 0 <= places[2] < 70


CASES = [(torch.float32, name) for name in TRUNCATIONS] + [
    (one, name) for one in DTYPES[1:] for name in ("plain", "all")
]


@pytest.mark.parametrize(("dtype", "truncation"), CASES, ids=str)
def test_draws_are_those_of_the_reference(values, truncation, dtype):
    limits = TRUNCATIONS[truncation]
    for size in (1, 2, 31, 97):
        logits = values(4, size, dtype=dtype, seed=size) * 2
        given = numbers(4, temperature=0.8, seed=size, **limits)
        due = draw(logits, None, given, truncated=bool(limits))
        assert torch.equal(sampling.draw(logits, None, given, truncated=bool(limits)), due)


def test_draws_are_those_of_the_host_processor(values):
    if not library.available():
        pytest.skip(f"no native library: {library.reason()}")
    logits = values(6, 97, seed=4) * 2
    for seed, limits in enumerate(({}, {"top_k": 8, "top_p": 0.9, "min_p": 0.05})):
        given = numbers(6, temperature=1.3, seed=seed, **limits)
        due = native.draw(logits, None, given, truncated=bool(limits))
        assert torch.equal(sampling.draw(logits, None, given, truncated=bool(limits)), due)


def test_every_token_is_drawn_as_often_as_is_due(values):
    """Uniform numbers across [0, 1) give each token its share of them."""
    logits, count = values(1, 20, seed=3), 100
    given = numbers(count)
    given[4] = (torch.arange(count) + 0.5) / count
    rows = torch.zeros(count, dtype=torch.int64)
    found = sampling.draw(logits, rows, given, truncated=False).bincount(minlength=20)
    assert (found - logits[0].double().softmax(-1) * count).abs().max() <= 1


def test_rows_are_picked_and_may_lie_apart(values, apart):
    logits, rows = apart(values(5, 40)), torch.tensor([4, 0, 4, 2])
    given = numbers(4, top_k=6)
    assert torch.equal(sampling.draw(logits, rows, given, truncated=True), draw(logits, rows, given, truncated=True))


def test_equal_values_are_kept_or_cut_together():
    logits = torch.tensor([[3.0, 1.0, 2.0, 1.0, 2.0, 2.0, 0.0, NEVER]])
    for limits, kept in (
        ({"top_k": 2}, {0, 2, 4, 5}),
        ({"top_k": 4}, {0, 2, 4, 5}),
        ({"top_k": 5}, {0, 1, 2, 3, 4, 5}),
    ):
        given = numbers(24, **limits)
        given[4] = (torch.arange(24) + 0.5) / 24
        found = sampling.draw(logits, torch.zeros(24, dtype=torch.int64), given, truncated=True)
        assert set(found.tolist()) == kept


def test_the_ends_of_the_uniform_numbers(values):
    logits = values(1, 50)
    logits[0, 0] = logits[0, 49] = NEVER
    given = numbers(2)
    given[4] = torch.tensor([0.0, 1 - 2.0**-52], dtype=torch.float64)
    first, last = sampling.draw(logits, torch.tensor([0, 0]), given, truncated=False).tolist()
    assert (first, last) == (1, 48)


def test_masked_and_strange_rows(values):
    logits = values(5, 33)
    logits[0, 1:] = NEVER
    logits[1, 5], logits[2, 32], logits[3] = float("nan"), float("inf"), NEVER
    found = sampling.draw(logits, None, numbers(5, top_p=0.9), truncated=True)
    assert found[0] == 0 and bool(((found >= 0) & (found < 33)).all())
    assert torch.equal(found[4:], draw(logits[4:], None, numbers(5, top_p=0.9)[:, 4:], truncated=True))


def test_no_entries(values):
    assert sampling.draw(values(0, 9), None, numbers(0), truncated=False).shape == (0,)
    assert sampling.draw(values(3, 9), torch.zeros(0, dtype=torch.int64), numbers(0), truncated=True).shape == (0,)


def test_a_low_temperature_leaves_the_best(values):
    logits = values(3, 40)
    given = numbers(3, temperature=1e-6)
    assert torch.equal(sampling.draw(logits, None, given, truncated=False), logits.argmax(-1))
