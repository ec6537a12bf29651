"""Tokens of tiny models by a backend on the fake device, beside those of the reference backend on the host."""

from __future__ import annotations

import numpy as np

from core import LLM, SamplingParams

REPEATED = [5, 9, 14, 3, 77, 8] * 4
PROMPTS = [{"prompt_token_ids": REPEATED[number : number + length]} for number, length in enumerate((24, 20, 3, 17))]
ENGINE = {
    "dtype": "float32",
    "max_num_seqs": 4,
    "max_num_batched_tokens": 24,
    "max_model_len": 64,
    "block_size": 16,
    "num_blocks": 32,
}


def answers(model, *, tokens=8, **options):
    """Return tokens and scores of all prompts at once, then of the first two again; and the platform."""
    greedy = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, logprobs=1)
    with LLM(model, **{**ENGINE, **options}) as llm:
        found = [*llm.generate(PROMPTS, greedy), *llm.generate(PROMPTS[:2], greedy)]
        scores = [one.logprob for out in found for step in out.outputs[0].logprobs for one in step.values()]
        platform = llm._engine._core.loop.executor._worker._platform
        return [out.outputs[0].token_ids for out in found], scores, platform


def same_tokens(model, backend, **options):
    """Run a model both ways and compare; return the fake platform."""
    due = answers(model, platform="cpu", attention_backend="torch_sdpa")
    found = answers(model, platform="fake", attention_backend=backend, **options)
    assert found[0] == due[0]
    np.testing.assert_allclose(found[1], due[1], atol=1e-4)
    return found[2]
