"""Draws: distribution, reproducibility, log-probabilities, mixed batches, failures."""

import numpy as np
import pytest
import torch

from core.worker.sampling import sampler as sampler_module
from core.worker.sampling.rng import keyed_uniforms


def test_greedy_takes_the_most_likely(bench, logits):
    values = logits(3)
    for row in range(3):
        bench.add(row, temperature=0.0)
    assert bench.tokens([0, 1, 2], values) == values.argmax(-1).tolist()
    assert bench.tokens([0, 1, 2], values.bfloat16()) == values.bfloat16().float().argmax(-1).tolist()


def test_a_mixed_batch_gives_each_row_what_it_asked(bench, logits):
    values = logits(5)
    best = values.argmax(-1).tolist()
    bench.add(0, temperature=0.0)
    bench.add(1, temperature=1.0, top_k=1)
    bench.add(2, temperature=0.0, allowed_token_ids=[4])
    bench.add(3, temperature=1.0, top_p=1e-6)
    bench.add(4, temperature=1e-9)
    assert bench.tokens([0, 1, 2, 3, 4], values) == [best[0], best[1], 4, best[3], best[4]]


@pytest.mark.parametrize(
    "params", [{}, {"temperature": 0.5}, {"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.2, "temperature": 2.0}]
)
def test_draws_follow_the_distribution(make_bench, params):
    bench = make_bench(vocab=12)
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(3))
    rows = list(range(10))
    for row in rows:
        bench.add(row, **params)
    draws = np.concatenate([bench.tokens(rows, logits.expand(10, 12)) for _ in range(400)])
    scaled = logits[0].double() / params.get("temperature", 1.0)
    order = scaled.argsort(descending=True)
    kept = torch.zeros(12, dtype=torch.bool)
    kept[order[: params.get("top_k", 12)]] = True
    ordered = scaled.softmax(-1)[order]
    kept[order[(ordered.cumsum(-1) - ordered) >= params.get("top_p", 1.1)]] = False
    kept &= scaled.softmax(-1) >= params.get("min_p", 0.0) * ordered[0]
    expected = scaled.masked_fill(~kept, -np.inf).softmax(-1).numpy() * len(draws)
    seen = np.bincount(draws, minlength=12)
    assert not seen[~kept.numpy()].any()
    inside = kept.numpy()
    chi_square = ((seen[inside] - expected[inside]) ** 2 / expected[inside]).sum()
    assert chi_square < 35  # 11 degrees of freedom at most: p < 0.0003


def test_a_seeded_row_draws_the_same_alone_and_in_a_batch(make_bench, logits):
    values = logits(6)
    for params in ({}, {"top_k": 7}, {"top_p": 0.8}, {"min_p": 0.1, "top_k": 20}):
        alone = make_bench(seed=1)
        alone.add(2, seed=42, **params)
        crowd = make_bench(seed=2)
        for row in range(6):
            crowd.add(row, top_k=row * 3, temperature=0.3 * row)
        crowd.add(2, seed=42, **params)
        for step in range(12):
            shifted = values.roll(step, 1)
            token = alone.tokens([2], shifted[2:3])[0]
            assert crowd.tokens(list(range(6)), shifted)[2] == token
            assert crowd.tokens([5, 2], shifted[[5, 2]])[1] == token
            alone.say(2, token)
            crowd.say(2, token)


def test_different_seeds_and_places_draw_differently(make_bench):
    bench, flat = make_bench(vocab=1000), torch.zeros(8, 1000)
    for row in range(8):
        bench.add(row, seed=row - 4)
    first = bench.tokens(list(range(8)), flat)
    assert len(set(first)) == 8
    bench.say(0, 1)
    assert bench.tokens([0], flat[:1])[0] != first[0]


def test_keyed_numbers_are_uniform_and_fixed():
    seeds = np.repeat(np.array([-(2**63), 0, 7, 2**63 - 1]), 2000)
    numbers = keyed_uniforms(seeds, np.tile(np.arange(2000), 4))
    assert numbers.min() >= 0 and numbers.max() < 1
    assert np.abs(np.histogram(numbers, 10, (0, 1))[0] - 800).max() < 120
    assert abs(np.corrcoef(numbers[:2000], numbers[2000:4000])[0, 1]) < 0.1
    fixed = keyed_uniforms(np.array([7, 3, 7]), np.array([3, 7, 3]))
    assert fixed[0] == fixed[2] != fixed[1]
    assert fixed[0] == 0.3815074326770107


def test_unseeded_draws_repeat_under_the_engines_seed(make_bench, logits):
    def text(seed):
        bench = make_bench(seed=seed)
        bench.add(0)
        return [bench.tokens([0], logits(1))[0] for _ in range(20)]

    assert text(5) == text(5) != text(6)


def test_a_token_of_no_probability_is_never_drawn(make_bench, monkeypatch):
    bench = make_bench(vocab=8)
    values = torch.tensor([[-np.inf, -np.inf, 0.0, -np.inf, 0.0, -np.inf, -np.inf, -np.inf]], dtype=torch.float32)
    bench.add(0)
    for number in (0.0, 0.49999, 0.5, 1 - 2**-52):
        draw = np.array([number])
        monkeypatch.setattr(bench.sampler._uniforms, "draw", lambda *_, draw=draw: draw)
        assert bench.tokens([0], values)[0] in (2, 4)


def test_logprobs_list_the_chosen_token_first(bench, logits):
    values = logits(3)
    bench.add(0, temperature=0.0, logprobs=3)
    bench.add(1, temperature=0.0)
    bench.add(2, temperature=0.0, logprobs=0, allowed_token_ids=[11])
    result = bench.sample([0, 1, 2], values)
    wanted = values.log_softmax(-1)
    assert set(result.logprobs) == {0, 2}
    first = result.logprobs[0]
    best = wanted[0].topk(3)
    assert first.ids.tolist() == [[best.indices[0], *best.indices.tolist()]]
    np.testing.assert_allclose(first.values[0, 1:], best.values, rtol=1e-5)
    assert first.ranks.tolist() == [1]
    forced = result.logprobs[2]
    assert forced.ids.tolist() == [[11]]
    np.testing.assert_allclose(forced.values, wanted[2:, 11:12], rtol=1e-5)
    assert forced.ranks[0] == int((wanted[2] > wanted[2, 11]).sum()) + 1
    assert (forced.ids.dtype, forced.values.dtype, forced.ranks.dtype) == (np.int32, np.float32, np.int32)


def test_logprobs_are_those_of_the_model_not_of_the_sampler(bench, logits):
    values = logits(1)
    bench.add(0, temperature=0.3, top_k=2, logprobs=40, logit_bias={3: 20.0}, repetition_penalty=2.0)
    entry = bench.sample([0], values).logprobs[0]
    wanted = values.log_softmax(-1)[0]
    np.testing.assert_allclose(entry.values[0], wanted[entry.ids[0]], rtol=1e-5)
    assert entry.ids.shape == (1, 41)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("params", [{"temperature": 0.0}, {"top_k": 3, "logprobs": 1}, {"top_p": 0.5, "min_p": 0.1}])
def test_rows_that_are_not_finite_fail_alone(bench, logits, bad, params):
    values = logits(3)
    bench.add(0, **params)
    bench.add(1, seed=3, **params)
    bench.add(2, seed=3, **params)
    wanted = bench.tokens([1, 2], values[1:])
    values[0, 5] = bad
    result = bench.sample([0, 1, 2], values)
    assert list(result.errors) == [0] and "CORE-E121" in result.errors[0]
    assert result.tokens[1:].tolist() == wanted
    assert 0 not in result.logprobs


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_left_is_an_error_of_its_row(bench, logits, temperature):
    bench.add(0, temperature=temperature, top_k=2, allowed_token_ids=[4], bad_token_ids=[[4]])
    bench.add(1, temperature=temperature, top_k=2, allowed_token_ids=[4])
    result = bench.sample([0, 1], logits(2))
    assert list(result.errors) == [0] and "CORE-E122" in result.errors[0]
    assert result.tokens[1] == 4


def test_a_large_batch_is_sampled_in_parts(make_bench, logits, monkeypatch):
    monkeypatch.setattr(sampler_module, "PART_ELEMENTS", 80)
    bench, values = make_bench(), logits(7)
    for row in range(7):
        bench.add(row, temperature=0.0, **({"logprobs": 1} if row % 2 else {}))
    values[4, 3] = float("nan")
    result = bench.sample(list(range(7)), values)
    assert set(result.logprobs) == {1, 3, 5} and set(result.errors) == {4}
    healthy = [0, 1, 2, 3, 5, 6]
    assert result.tokens[healthy].tolist() == values[healthy].argmax(-1).tolist()
    assert result.logprobs[5].ids[0, 0] == values[5].argmax()
