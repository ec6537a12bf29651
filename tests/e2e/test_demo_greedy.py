"""The demo model against transformers: greedy tokens and logits, in float32, weights decoded."""

from __future__ import annotations

import pytest

from core import LLM, SamplingParams


@pytest.fixture(scope="module")
def generated(prompts):
    with LLM("smollm2", dtype="float32", max_num_seqs=16, max_model_len=512, num_blocks=400) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True, logprobs=5)
        yield llm.generate(prompts, params)


@pytest.mark.covers("MODEL-04", "QUANT-12")
def test_greedy_tokens_and_logprobs_equal_the_reference(generated, reference):
    """Teacher forcing: the reference, fed what core generated, must choose the same token at every position."""
    import torch

    assert len(generated) >= 12
    for request in generated:
        (output,) = request.outputs
        assert len(output.token_ids) == 64
        ids = torch.tensor([[*request.prompt_token_ids, *output.token_ids]])
        with torch.inference_mode():
            logits = reference(ids).logits[0, len(request.prompt_token_ids) - 1 : -1]
        assert logits.argmax(-1).tolist() == output.token_ids
        logprobs = logits.log_softmax(-1)
        for position, alternatives in enumerate(output.logprobs):
            for token, entry in alternatives.items():
                assert entry.logprob == pytest.approx(float(logprobs[position, token]), abs=1e-3)


def test_prompts_are_tokenized_as_the_reference_does(generated, reference_tokenizer, prompts):
    for request, prompt in zip(generated, prompts, strict=True):
        assert request.prompt_token_ids == reference_tokenizer(prompt).input_ids
        text = reference_tokenizer.decode(request.outputs[0].token_ids, skip_special_tokens=True)
        assert request.outputs[0].text == text
