"""Beam search, with transformers as the reference."""

from __future__ import annotations

import pytest

from core import LLM, BeamSearchParams, SamplingParams
from core.api.errors import RequestError
from core.frontend.beams.search import BeamSearch
from core_testing.tinymodels import reference_model, tiny_llama

PROMPTS = [[5, 9, 14, 3, 3, 77, 8], [1, 2, 3]]


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    path = tiny_llama(tmp_path_factory.mktemp("beams") / "llama")
    with LLM(str(path), dtype="float32", num_blocks=200, max_num_seqs=16) as made:
        yield made


@pytest.fixture(scope="module")
def reference():
    model = reference_model()

    def run(prompt, eos, **named):
        import torch

        ids = torch.tensor([prompt])
        width = named.pop("beam_width")
        named["max_new_tokens"] = named.pop("max_tokens")
        with torch.no_grad():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                num_beams=width,
                num_return_sequences=width,
                eos_token_id=eos,
                pad_token_id=-1,
                return_dict_in_generate=True,
                output_scores=True,
                **named,
            )
        rows = [[token for token in row if token != -1] for row in out.sequences[:, len(prompt) :].tolist()]
        return rows, out.sequences_scores.tolist()

    return run


@pytest.fixture
def ends(llm, monkeypatch):
    """Let these tokens end sequences: the model's own end is so unlikely that no beam would ever see it."""

    def use(ids):
        monkeypatch.setattr(llm.model.tokenizer, "eos_ids", tuple(ids))

    return use


CASES = [
    {"beam_width": 4, "max_tokens": 8},
    {"beam_width": 3, "max_tokens": 12, "length_penalty": 2.0},
    {"beam_width": 3, "max_tokens": 12, "length_penalty": 0.0, "early_stopping": "never"},
    {"beam_width": 4, "max_tokens": 12, "length_penalty": -1.0, "early_stopping": True},
    {"beam_width": 4, "max_tokens": 10, "length_penalty": 1.5, "early_stopping": "never"},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_transformers(llm, reference, ends, case):
    wide = SamplingParams(temperature=0.0, max_tokens=1, logprobs=6)
    for prompt in PROMPTS:
        likely = list(llm.generate({"prompt_token_ids": prompt}, wide)[0].outputs[0].logprobs[0])
        for eos in ([likely[1]], [likely[0], likely[2]], [likely[4], 7]):
            ends(eos)
            rows, scores = reference(prompt, eos, **case)
            outputs = llm.beam_search({"prompt_token_ids": prompt}, BeamSearchParams(**case))[0].outputs
            assert [one.token_ids for one in outputs] == rows
            power = case.get("length_penalty", 1.0)
            found = [one.cumulative_logprob / len(one.token_ids) ** power for one in outputs]
            assert found == pytest.approx(scores, abs=2e-3)
            assert all((one.finish_reason == "stop") == (one.token_ids[-1] in eos) for one in outputs)


def test_many_prompts_at_once_and_one_beam_is_greedy(llm):
    params = BeamSearchParams(beam_width=3, max_tokens=5, ignore_eos=True)
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    together = llm.beam_search([*prompts, "the engine"], params)
    alone = [llm.beam_search(prompt, params)[0] for prompt in prompts]
    for first, second in zip(together, alone, strict=False):
        assert [one.token_ids for one in first.outputs] == [one.token_ids for one in second.outputs]
    assert together[2].prompt == "the engine" and len(together[2].outputs) == 3
    one = llm.beam_search(prompts, BeamSearchParams(beam_width=1, max_tokens=5, ignore_eos=True))
    greedy = llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True))
    assert [a.outputs[0].token_ids for a in one] == [b.outputs[0].token_ids for b in greedy]
    assert one[0].outputs[0].text == greedy[0].outputs[0].text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"beam_width": 0}, "beam_width"),
        ({"beam_width": True}, "beam_width"),
        ({"beam_width": 2, "max_tokens": 0}, "max_tokens"),
        ({"beam_width": 2, "length_penalty": float("nan")}, "length_penalty"),
        ({"beam_width": 2, "early_stopping": "maybe"}, "early_stopping"),
        ({"beam_width": 2, "stop": [""]}, "stop"),
        ({"beam_width": 2, "logprobs": 129}, "logprobs"),
    ],
)
def test_parameters(fields, param):
    with pytest.raises(RequestError) as caught:
        BeamSearchParams(**fields)
    assert caught.value.param == param


def test_limits(llm):
    with pytest.raises(RequestError, match="at most 42"):
        BeamSearch(BeamSearchParams(beam_width=43), [1, 2])
    with pytest.raises(RequestError) as caught:
        llm.beam_search({"prompt_token_ids": [1]}, BeamSearchParams(beam_width=2, max_tokens=10**6))
    assert caught.value.param == "max_tokens"
