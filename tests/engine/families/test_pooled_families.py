"""Families made to embed or to classify: class scores and hidden states of a tiny random checkpoint."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core import LLM, PoolingParams

PROMPTS = [[5 + 3 * index % 300 for index in range(length)] for length in (17, 40)]
RAW = PoolingParams(normalize=False, use_activation=False)
CLOSE = 1e-3


@pytest.mark.covers("POOL-02")
def test_scores_and_states_are_those_of_the_reference(pooled, tmp_path):
    model = pooled.model()
    path = str(pooled.write(tmp_path / "model", model))
    with LLM(path, dtype="float32", threads=1, max_model_len=96) as llm, torch.no_grad():
        for ids in PROMPTS:
            answer = model(torch.tensor([ids]))
            if pooled.architecture.endswith("Model"):
                found, due = llm.embed([ids], RAW)[0].outputs.array, answer.last_hidden_state[0, -1]
            else:
                found, due = llm.classify([ids], RAW)[0].outputs.probs, answer.logits[0]
            np.testing.assert_allclose(found, due, atol=CLOSE, rtol=CLOSE)
