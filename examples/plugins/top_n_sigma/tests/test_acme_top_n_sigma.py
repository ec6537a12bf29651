from types import SimpleNamespace

import numpy as np
import pytest
import torch
from acme_core_top_n_sigma.manifest import TOP_N_SIGMA
from acme_core_top_n_sigma.processor import TopNSigma

from core import LLM, SamplingParams
from core.api import RequestError
from core_testing.tinymodels import tiny_llama


def processor(*numbers):
    return TopNSigma(SimpleNamespace(numbers={"top_n_sigma": np.array(numbers, np.float64)}))


def plain(logits, n):
    there = logits[logits.isfinite()]
    return logits.where(logits >= there.max() - n * there.std(correction=0), float("-inf"))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_rows_are_cut_as_in_plain_torch(temperature):
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0)) / temperature
    logits[1, ::3] = float("-inf")
    logits[2] = float("-inf")
    logits[2, 7] = 1.0  # only one is left: it stays
    due = torch.stack([plain(line, n) for line, n in zip(logits, (1.0, 0.5, 2.0), strict=True)])
    processor(1.0, 2.0, 0.0, 0.5).apply(logits, np.array([0, 3, 1]), np.zeros(3, np.int64))
    assert torch.equal(logits, due)


def test_rows_without_the_number_are_none_of_its_business():
    one = processor(0.0, 1.5)
    assert [one.admit(row, None, np.zeros(1, np.int32)) for row in (0, 1)] == [False, True]


def test_the_default_has_no_effect_and_the_range_holds():
    (field,) = TOP_N_SIGMA.fields
    assert field.fault(field.default) is None and field.fault(-1) and field.fault("1") and field.fault(float("nan"))


def test_a_request_samples_with_it(tmp_path):
    options = {"dtype": "float32", "num_blocks": 60, "logits_processor": ["top_n_sigma"]}
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=8, ignore_eos=True)
    with LLM(str(tiny_llama(tmp_path / "llama")), **options) as llm:
        greedy, cut, free = llm.generate(
            [[5, 6, 7]] * 3,
            [
                params.replace(temperature=0.0),
                params.replace(extra_args={"top_n_sigma": 0.001}),
                params.replace(extra_args={"top_n_sigma": 0}),
            ],
        )
        with pytest.raises(RequestError, match=r"top_n_sigma must be in \[0, 100\], got 101") as refusal:
            llm.generate([[5]], params.replace(extra_args={"top_n_sigma": 101}))
    assert refusal.value.param == "top_n_sigma"
    assert cut.outputs[0].token_ids == greedy.outputs[0].token_ids != free.outputs[0].token_ids
