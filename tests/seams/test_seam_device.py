"""A device with memory of its own gives the tokens of the host processor, whatever requests ask for."""

from __future__ import annotations

import numpy as np
import pytest

from core import LLM, SamplingParams
from core.worker.transfers import Transfers

REPEATED = [5, 9, 14, 3, 77, 8] * 4
ASKED = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 1.0, "seed": 7, "top_p": 0.9},
    "plain draw": {"temperature": 0.8, "seed": 5},
    "penalties": {"temperature": 0.0, "repetition_penalty": 1.3, "presence_penalty": 0.7, "frequency_penalty": 0.4},
    "logprobs": {"temperature": 0.0, "logprobs": 3, "prompt_logprobs": 1},
    "asked logprobs": {"temperature": 1.0, "seed": 2, "logprob_token_ids": [4, 40]},
    "bad words": {"temperature": 1.0, "seed": 1, "bad_token_ids": [[40, 41], [12]], "logit_bias": {40: 4.0, 41: 4.0}},
    "minimum": {"temperature": 1.0, "seed": 2, "min_tokens": 12, "stop_token_ids": list(range(3, 60))},
    "allowed": {"temperature": 0.0, "allowed_token_ids": [5, 6, 7, 8]},
    "grammar": {"temperature": 1.0, "seed": 3, "grammar": {"regex": "[0-9]{9}-[a-c]{9}"}},
}
ENGINE = {
    "dtype": "float32",
    "attention_backend": "torch_sdpa",
    "max_num_seqs": 6,
    "max_num_batched_tokens": 40,
    "max_model_len": 96,
    "block_size": 16,
}
ENGINES = {
    "preempted": {"num_blocks": 14},
    "drafts": {"num_blocks": 64, "drafter": "ngram", "draft_tokens": 3},
}


def answers(llm):
    """What all requests of `ASKED` at once are answered, and then those with a common prefix again."""
    prompts = [{"prompt_token_ids": REPEATED[number % 3 :]} for number in range(len(ASKED))]
    params = [SamplingParams(max_tokens=20, **fields) for fields in ASKED.values()]
    found = [*llm.generate(prompts, params), *llm.generate(prompts[:3], params[:3])]
    return [(out.outputs[0].token_ids, out.outputs[0].finish_reason) for out in found], [
        [value.logprob for step in (out.outputs[0].logprobs or []) for value in step.values()]
        + [value.logprob for step in (out.prompt_logprobs or []) if step for value in step.values()]
        for out in found
    ]


@pytest.fixture(scope="module")
def wanted(llama):
    """What the host processor answers."""
    with LLM(llama, **ENGINE, num_blocks=64, platform="cpu") as llm:
        return answers(llm)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("depth", range(5))
def test_a_device_of_its_own_gives_the_same(plugins, llama, wanted, depth, engine):
    plugins("fake_device")
    with LLM(llama, **ENGINE, **ENGINES[engine], platform="fake", overlap_depth=depth) as llm:
        tokens, scores = answers(llm)
        stats = llm.call("stats")
    assert tokens == wanted[0]
    for found, due in zip(scores, wanted[1], strict=True):
        np.testing.assert_allclose(found, due, atol=1e-4)
    assert stats["prefix_hits"] > 0 and (engine != "preempted" or stats["preemptions"] > 0)


@pytest.mark.parametrize("areas", [1, None])
def test_a_staging_area_that_is_used_again_too_early_changes_tokens(plugins, llama, prompt, monkeypatch, areas):
    """With a ring of one area whose fence is ignored the device reads the inputs of a later step."""
    plugins("fake_device")
    if areas is not None:
        from core.testing.fakedevice.queue import LateQueue

        monkeypatch.setattr(LateQueue, "fence", lambda self: None)
        monkeypatch.setattr(Transfers, "areas", property(lambda self: areas, lambda self, value: None), raising=False)
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    with LLM(llama, **ENGINE, num_blocks=64, platform="cpu") as llm:
        due = [out.outputs[0].token_ids for out in llm.generate([prompt(9), prompt(4, 1)], params)]
    with LLM(llama, **ENGINE, num_blocks=64, platform="fake", overlap_depth=2) as llm:
        found = [out.outputs[0].token_ids for out in llm.generate([prompt(9), prompt(4, 1)], params)]
    assert (found == due) == (areas is None)
