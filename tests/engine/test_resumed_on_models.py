"""A request that another engine has begun gives the same tokens and log-probabilities, whatever it samples with."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from core.api.sampling_params import SamplingParams
from core.config.resolved import Options, SelectOptions
from core.engine.client import open_sync
from core.engine.messages import Add
from core.options.engine import KVOptions, RuntimeOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.tinymodels import tiny_llama

PROMPT = [5, 9, 14, 3, 3, 77, 8]
ASKED = {
    "greedy": {"temperature": 0.0, "logprobs": 2},
    "seeded": {"temperature": 1.0, "seed": 7, "top_p": 0.9, "logprobs": 2},
    "penalties": {"temperature": 0.0, "repetition_penalty": 1.3, "presence_penalty": 0.7, "frequency_penalty": 0.4},
    "bad words": {"temperature": 1.0, "seed": 1, "bad_token_ids": [[40, 41], [12]], "logit_bias": {40: 4.0, 41: 4.0}},
    "minimum": {"temperature": 1.0, "seed": 2, "min_tokens": 12, "stop_token_ids": list(range(3, 60))},
    "grammar": {"temperature": 1.0, "seed": 3, "grammar": {"regex": "[0-9]{9}-[a-c]{9}"}},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    options = Options(
        model=ModelOptions(model=str(tiny_llama(tmp_path_factory.mktemp("models") / "llama")), dtype="float32"),
        kv=KVOptions(num_blocks=64),
        runtime=RuntimeOptions(threads=1),
        select=SelectOptions(structured_output="llguidance"),
    )
    with closing(open_sync(resolve(options).config)) as engine:
        yield engine


def answer(engine, asked, generated=()):
    """Return the new tokens and the log-probability of each."""
    params = SamplingParams(max_tokens=16, **asked)
    message = Add(
        handle=1,
        prompt=np.array(PROMPT, "<i4").tobytes(),
        params=params,
        stop_ids=params.stop_token_ids,
        generated=np.array(generated, "<i4").tobytes(),
    )
    engine.send(message)
    tokens, scores = [], []
    while answers := engine.step():
        for outputs in answers:
            tokens += np.frombuffer(outputs.tokens, "<i4").tolist()
            scores += [found.values[0] for found in outputs.logprobs.values()]
            assert not any(end.error for end in outputs.finished)
    return tokens, scores


@pytest.mark.parametrize("name", ASKED)
def test_it_says_what_it_would_have_said(engine, name):
    whole, scores = answer(engine, ASKED[name])
    assert len(whole) > 8
    for known in (1, 5, len(whole) - 1):
        rest, again = answer(engine, ASKED[name], whole[:known])
        assert whole[:known] + rest == whole
        assert again == pytest.approx(scores[known:], abs=1e-4)
