"""Masks, bias and penalties against plain numpy."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NEVER = -np.inf


def test_allowed_tokens_are_all_that_is_left(bench, logits):
    bench.add(0, allowed_token_ids=[3, 9, 3, 1000])
    bench.add(1)
    values = logits(2)
    after = bench.logits_after([0, 1], values)
    assert after[0].isfinite().nonzero().flatten().tolist() == [3, 9]
    assert torch.equal(after[0, [3, 9]], values[0, [3, 9]])
    assert torch.equal(after[1], values[1])


def test_the_models_logits_are_not_changed_in_place(bench, logits):
    bench.add(0, logit_bias={1: 5.0}, logprobs=0)
    values = logits(1)
    before = values.clone()
    bench.sample([0], values)
    assert torch.equal(values, before)


@pytest.mark.parametrize(
    ("text", "banned"),
    [
        ([1, 2], {5, 8}),
        ([1, 6], {5, 7, 8}),
        ([4, 4], {5, 8, 2}),
        ([9, 4, 4], {5, 8, 2}),
        ([4], {5, 8}),
        ([6, 6], {5, 7, 8}),
    ],
)
def test_bad_words_ban_the_token_that_completes_them(bench, logits, text, banned):
    bench.add(0, prompt=text[:1], output=text[1:], bad_token_ids=[[5], [6, 7], [4, 4, 2], [3, 8], [8], [2, 3000]])
    after = bench.logits_after([0], logits(1))
    assert set(np.flatnonzero(after[0] == NEVER)) == banned


def test_two_bad_words_may_end_alike(bench, logits):
    bench.add(0, prompt=[1], bad_token_ids=[[1, 7], [2, 7]])
    assert bench.logits_after([0], logits(1))[0, 7] == NEVER


def test_min_tokens_holds_stop_tokens_back(bench, logits):
    bench.add(0, output=[5], min_tokens=2, stop_ids=(7, 8, 5000))
    bench.add(1, output=[5, 6], min_tokens=2, stop_ids=(7,))
    bench.add(2, min_tokens=1, stop_ids=())
    after = bench.logits_after([0, 1, 2], logits(3))
    assert np.flatnonzero(after[0] == NEVER).tolist() == [7, 8]
    assert after[1:].isfinite().all()


def test_logit_bias_is_added(bench, logits):
    bench.add(0, logit_bias={3: 1.5, 4: -100.0, 9999: 2.0})
    values = logits(1)
    wanted = values.clone()
    wanted[0, 3] += 1.5
    wanted[0, 4] -= 100
    assert torch.equal(bench.logits_after([0], values), wanted)


def penalised(values, prompt, output, repetition, frequency, presence):
    counts = np.bincount(output, minlength=len(values)) if output else np.zeros(len(values))
    seen = counts > 0
    seen_anywhere = seen | np.isin(np.arange(len(values)), prompt)
    values = np.where(seen_anywhere, np.where(values > 0, values / repetition, values * repetition), values)
    return values - frequency * counts - presence * seen


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    prompt=st.lists(st.integers(0, 39), min_size=1, max_size=12),
    output=st.lists(st.integers(0, 39), max_size=12),
    repetition=st.sampled_from([1.0, 0.5, 1.8]),
    frequency=st.sampled_from([0.0, 0.7, -1.0]),
    presence=st.sampled_from([0.0, 1.1]),
)
def test_penalties_follow_the_text_token_by_token(make_bench, prompt, output, repetition, frequency, presence):
    bench = make_bench()
    strengths = {"repetition_penalty": repetition, "frequency_penalty": frequency, "presence_penalty": presence}
    bench.add(3, prompt=prompt, **strengths)
    bench.add(4, prompt=prompt)
    values = torch.randn(2, 40, generator=torch.Generator().manual_seed(0))
    for length in range(len(output) + 1):
        after = bench.logits_after([3, 4], values)
        wanted = penalised(values[0].numpy(), prompt, output[:length], repetition, frequency, presence)
        np.testing.assert_allclose(after[0], wanted, rtol=1e-5, atol=1e-5)
        assert torch.equal(after[1], values[1])
        if length < len(output):
            bench.say(3, output[length])


def test_penalty_counts_catch_up_after_steps_they_did_not_see(bench, logits):
    bench.add(0, prompt=[1], frequency_penalty=1.0)
    values = logits(1)
    bench.logits_after([0], values)
    for token in (5, 5, 6):
        bench.say(0, token)
    wanted = penalised(values[0].numpy(), [1], [5, 5, 6], 1.0, 1.0, 0.0)
    for _ in range(2):
        np.testing.assert_allclose(bench.logits_after([0], values)[0], wanted, rtol=1e-5)


def test_a_penalty_slot_is_clean_for_its_next_owner(bench, logits):
    values = logits(9)
    for row in range(9):
        bench.add(row, prompt=[row], output=[row + 10] * 3, presence_penalty=2.0)
    bench.logits_after(list(range(9)), values)
    bench.add(4, prompt=[30], output=[31], presence_penalty=1.0, repetition_penalty=2.0)
    bench.add(5, prompt=[30], output=[31])
    after = bench.logits_after(list(range(9)), values)
    np.testing.assert_allclose(after[4], penalised(values[4].numpy(), [30], [31], 2.0, 0.0, 1.0), rtol=1e-5)
    assert torch.equal(after[5], values[5])
    np.testing.assert_allclose(after[8], penalised(values[8].numpy(), [8], [18] * 3, 1.0, 0.0, 2.0), rtol=1e-5)


def test_rows_without_features_have_no_bits(bench):
    bench.add(0, temperature=0.0)
    assert bench.batch([0]).features == 0
    bench.add(0, temperature=0.0, min_tokens=3, stop_ids=(), logit_bias={}, bad_token_ids=[])
    assert bench.batch([0]).features == 0
