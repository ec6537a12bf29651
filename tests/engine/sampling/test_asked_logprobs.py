"""Log-probabilities of tokens that a request names, instead of the likely ones."""

import numpy as np
import pytest
import torch

from core.api.errors import RequestError
from core.api.sampling_params import SamplingParams


def test_named_tokens_stand_behind_the_sampled_one(bench, logits):
    values = logits(3)
    bench.add(0, temperature=0.0, logprobs=2, logprob_token_ids=[7, 3])
    bench.add(1, temperature=0.0, logprobs=1)
    bench.add(2, temperature=0.0, logprob_token_ids=[5])
    result = bench.sample([0, 1, 2], values)
    expected = torch.log_softmax(values, -1).numpy()
    first, second, third = (result.logprobs[row] for row in range(3))
    assert first.ids.tolist() == [[int(values[0].argmax()), 7, 3]] and first.values.shape == (1, 3)
    assert second.ids.shape == (1, 2)
    assert third.ids.tolist() == [[int(values[2].argmax()), 5]]
    for row, table in enumerate((first, second, third)):
        np.testing.assert_allclose(table.values[0], expected[row, table.ids[0]], rtol=1e-5)


def test_the_next_owner_of_a_row_is_not_given_them(bench, logits):
    bench.add(0, temperature=0.0, logprob_token_ids=[7])
    bench.sample([0], logits(1))
    bench.add(0, temperature=0.0, logprobs=1)
    assert bench.sample([0], logits(1)).logprobs[0].ids.shape == (1, 2)


def test_they_are_log_probabilities_after_all():
    assert SamplingParams(logprob_token_ids=[1, 2]).logprobs == 2
    assert SamplingParams(logprob_token_ids=[1], logprobs=3).logprobs == 1
    assert SamplingParams(logprob_token_ids=[]).logprobs is None
    with pytest.raises(RequestError) as caught:
        SamplingParams(logprob_token_ids=[1] * 129)
    assert caught.value.param == "logprob_token_ids"
