"""The sampling kernels against float64, at every instruction set of this machine."""

import numpy as np
import pytest
import torch
from core_plugin_cpu.native import sampling

from core.ops import argmax, draw

DTYPES = (torch.float32, torch.bfloat16)
SIZES = (1, 5, 16, 255, 256, 257, 1000, 49152)


def normal(rows, size, dtype=torch.float32, seed=0, scale=3.0):
    return (torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def numbers(count, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, uniform=0.5):
    made = torch.empty(5, count, dtype=torch.float64)
    for row, value in zip(made, (temperature, top_k, top_p, min_p, uniform)):
        row[:] = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64)
    return made


def interval(values, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """Each token's share of [0, 1) in float64, `(vocab, 2)`; empty for those that are cut off."""
    scaled = (values.double() - values.double().max()) / temperature
    order = scaled.argsort(descending=True, stable=True)
    ranked = scaled[order]
    inside = torch.ones_like(ranked, dtype=torch.bool)
    if top_k:
        inside = ranked >= ranked[min(top_k, len(ranked)) - 1]
    mass = torch.where(inside, ranked.exp(), 0.0)
    above = torch.cat((torch.zeros(1), (mass.cumsum(0) / mass.sum())[:-1]))
    # Equal values are kept together: what counts is the mass above the first of them.
    first = torch.searchsorted(-ranked, -ranked)
    kept = inside & (above[first] < top_p) if top_p < 1 else inside
    if min_p:
        kept &= ranked >= np.log(min_p)
    mass = torch.zeros_like(scaled)
    mass[order[kept]] = scaled.exp()[order[kept]]
    ends = mass.cumsum(0) / mass.sum()
    return torch.stack((ends - mass / mass.sum(), ends), 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_argmax(isa, dtype):
    for size in SIZES:
        logits = normal(7, size, dtype, seed=size)
        best, places = sampling.argmax(logits)
        assert torch.equal(best, logits.amax(-1).float())
        assert torch.equal(places, logits.max(-1).indices)


@pytest.mark.parametrize("dtype", DTYPES)
def test_argmax_takes_the_first_of_equal_values(isa, dtype):
    for place in (0, 1, 300, 511, 512, 999):
        logits = torch.full((1, 1000), -2.0, dtype=dtype)
        logits[0, place:] = 1.5
        assert sampling.argmax(logits)[1].tolist() == [place]
    never = torch.full((2, 300), float("-inf"), dtype=dtype)
    never[1, 299] = -5.0
    best, places = sampling.argmax(never)
    assert best.tolist() == [float("-inf"), -5.0] and places.tolist() == [0, 299]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_argmax_shows_rows_that_are_not_finite(isa, dtype, bad):
    for size in (3, 257, 1000):
        for place in {0, 1, size // 2, size - 1}:
            logits = normal(3, size, dtype)
            logits[1, place] = bad
            best, places = sampling.argmax(logits)
            wanted, _ = argmax(logits)
            torch.testing.assert_close(best, wanted, equal_nan=True, rtol=0, atol=0)
            assert not best[1].isfinite() and 0 <= places[1] < size


def test_argmax_of_many_rows_and_of_rows_apart(isa):
    wide = normal(64, 5000)
    assert torch.equal(sampling.argmax(wide)[1], wide.argmax(-1))
    part = wide[:, 100:4100]
    assert torch.equal(sampling.argmax(part)[1], part.argmax(-1))
    assert torch.equal(sampling.argmax(wide.half())[1], wide.half().float().argmax(-1))


PARAMS = [
    {},
    {"temperature": 0.3},
    {"temperature": 7.0},
    {"top_k": 1},
    {"top_k": 40},
    {"top_k": 700},
    {"top_p": 0.9},
    {"top_p": 1e-6},
    {"top_p": 0.999, "temperature": 3.0},
    {"min_p": 0.1},
    {"top_k": 50, "top_p": 0.8, "min_p": 0.02, "temperature": 0.7},
    {"top_k": 5000, "top_p": 0.5},
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("params", PARAMS, ids=str)
def test_a_draw_inverts_the_distribution(isa, dtype, params):
    for size in (1, 17, 1000, 20011):
        logits = normal(1, size, dtype, seed=size)
        shares = interval(logits[0], **params)
        uniform = torch.rand(200, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        truncated = set(params) != {"temperature"} and bool(params)
        rows = torch.zeros(200, dtype=torch.int64)
        got = sampling.draw(logits, rows, numbers(200, uniform=uniform, **params), truncated=truncated)
        low, high = shares[got].T
        # Float32 exponentials: the token's share holds the number, up to that error.
        assert ((low - 1e-5 <= uniform) & (uniform <= high + 1e-5)).all()
        assert (high > low).all()


@pytest.mark.parametrize("params", PARAMS, ids=str)
def test_a_draw_is_that_of_the_reference(isa, params):
    logits = normal(500, 1000, seed=3)
    given = numbers(500, uniform=torch.rand(500, dtype=torch.float64), **params)
    got, wanted = sampling.draw(logits, None, given, truncated=True), draw(logits, None, given, truncated=True)
    assert (got != wanted).sum() <= 2  # a number within float32's error of the border between two tokens


def test_equal_values_are_kept_together(isa):
    logits = torch.zeros(1, 64)
    logits[0, 10:20] = 4.0
    uniform = torch.linspace(0, 0.9999, 400, dtype=torch.float64)
    rows = torch.zeros(400, dtype=torch.int64)
    for params in ({"top_k": 3}, {"top_p": 0.2}, {"min_p": 0.9}):
        got = sampling.draw(logits, rows, numbers(400, uniform=uniform, **params), truncated=True)
        assert sorted(set(got.tolist())) == list(range(10, 20))


def test_a_draw_takes_each_entrys_own_row_and_numbers(isa):
    logits = normal(6, 3000, torch.bfloat16)
    best = logits.float().argmax(-1)
    given = numbers(4, top_k=torch.tensor([1.0, 0, 0, 1]), min_p=torch.tensor([0, 1.0, 0, 0]), uniform=0.999)
    rows = torch.tensor([5, 0, 3, 3])
    got = sampling.draw(logits, rows, given, truncated=True)
    assert got[[0, 1, 3]].tolist() == best[[5, 0, 3]].tolist()
    assert got[2] == draw(logits, rows[2:3], given[:, 2:3], truncated=False)


def test_hidden_tokens_are_never_drawn_and_broken_rows_get_a_valid_one(isa):
    logits = torch.full((1, 5000), float("-inf"))
    logits[0, [3, 4097, 4999]] = 1.0
    uniform = torch.tensor([0.0, 1 / 3 - 1e-9, 1 / 3 + 1e-9, 0.7, 1 - 2**-52], dtype=torch.float64)
    rows = torch.zeros(5, dtype=torch.int64)
    for truncated in (False, True):
        got = sampling.draw(logits, rows, numbers(5, uniform=uniform, min_p=0.5), truncated=truncated)
        assert got.tolist() == [3, 3, 4097, 4999, 4999]
    broken = torch.zeros(3, 100)
    broken[0, 5], broken[1, 5], broken[2] = float("nan"), float("inf"), float("-inf")
    assert sampling.draw(broken, None, numbers(3, top_p=0.5), truncated=True).tolist() == [0, 0, 0]


def test_threads_share_the_rows(isa):
    logits = normal(33, 2000)
    given = numbers(33, top_p=0.7, uniform=torch.rand(33, dtype=torch.float64))
    whole = sampling.draw(logits, None, given, truncated=True)
    alone = [int(sampling.draw(logits[i : i + 1], None, given[:, i : i + 1], truncated=True)) for i in range(33)]
    assert whole.tolist() == alone
