"""Greedy tokens are those of transformers, however an engine cuts and repeats the work."""

from __future__ import annotations

import pytest
import torch

from core import LLM, SamplingParams
from core_testing.tinymodels import VOCAB_SIZE, reference_model, tiny_model

COUNT = 20
SIZES = (50, 37, 9, 25, 2)
PROMPTS = [[(7 * i * i + size * i + 11) % (VOCAB_SIZE - 3) + 3 for i in range(size)] for size in SIZES]
UNTIED = {"tie_word_embeddings": False}
"""With a tied head a random model repeats its last token, which proves little."""
MODES = {
    "whole": {"prefix_caching": False},
    "chunks": {"max_chunk": 7, "prefix_caching": False},
    "cached": {},
    "preempted": {"num_blocks": 23, "max_model_len": 80, "prefix_caching": False},
}


@pytest.fixture(scope="module", params=["gemma2", "gemma3", "gemma3_scaled"])
def checkpoint(request, tmp_path_factory):
    """A tiny checkpoint, and the tokens that transformers chooses after each prompt."""
    folder = tiny_model(tmp_path_factory.mktemp(request.param), request.param, **UNTIED)
    model = reference_model(request.param, **UNTIED)
    return folder, [_chosen(model, prompt) for prompt in PROMPTS]


def _chosen(model, prompt):
    tokens = list(prompt)
    with torch.no_grad():
        while len(tokens) < len(prompt) + COUNT:
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
            best, second = logits.topk(2).values
            assert best - second > 2e-4, "two tokens are as likely, so that rounding would choose"
            tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


@pytest.mark.covers("MODEL-04")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", ["cpu_native", "torch_sdpa"])
def test_tokens_equal_transformers(checkpoint, backend, mode):
    folder, expected = checkpoint
    options = {"num_blocks": 64, "block_size": 16, "attention_backend": backend, "threads": 1, **MODES[mode]}
    params = SamplingParams(temperature=0.0, max_tokens=COUNT, ignore_eos=True)
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    with LLM(str(folder), dtype="float32", max_num_seqs=8, **options) as llm:
        for _ in range(2 if mode == "cached" else 1):
            answers = [output.outputs[0].token_ids for output in llm.generate(prompts, params)]
            assert answers == expected
        stats = llm.call("stats")
    assert (stats["prefix_hits"] > 0) is (mode == "cached")
    assert (stats["preemptions"] > 0) is (mode == "preempted")
