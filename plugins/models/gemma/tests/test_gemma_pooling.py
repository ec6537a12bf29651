"""Embeddings and scores of tiny checkpoints are transformers'; windows both ways among them."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import torch

from core import LLM, PoolingParams
from core_testing.tinymodels import random_model, tiny_tokenizer

RAW = PoolingParams(normalize=False, use_activation=False)
IDS = [5 + 3 * index % 300 for index in range(40)]
SIZES = {
    "vocab_size": 384,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "sliding_window": 8,
    "query_pre_attn_scalar": 24,
    "max_position_embeddings": 256,
    "num_labels": 3,
    "pad_token_id": 0,
}


def checkpoint(directory, architecture, model_type, **changes):
    model = random_model(architecture, model_type, {**SIZES, **changes})
    model.save_pretrained(directory)
    tiny_tokenizer(directory)
    return model


def opened(directory):
    return closing(LLM(str(directory), dtype="float32", threads=1))


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize("window", [8, 9])
def test_an_embedding_model_sees_both_ways_through_its_windows(window, tmp_path):
    changes = {"use_bidirectional_attention": True, "sliding_window": window, "sliding_window_pattern": 2}
    model = checkpoint(tmp_path, "Gemma3TextModel", "gemma3_text", **changes)
    with torch.no_grad():
        expected = model(torch.tensor([IDS]))[0][0].numpy()
    with opened(tmp_path) as llm:
        found = llm.encode([IDS], RAW, pooling_task="token_embed")[0].outputs.data
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
        mean = expected.mean(0)
        np.testing.assert_allclose(llm.embed([IDS])[0].outputs.array, mean / np.linalg.norm(mean), atol=1e-4)


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [
        ("GemmaForSequenceClassification", "gemma"),
        ("Gemma2ForSequenceClassification", "gemma2"),
        ("Gemma3TextForSequenceClassification", "gemma3_text"),
    ],
)
def test_classifiers(architecture, model_type, tmp_path):
    model = checkpoint(tmp_path, architecture, model_type)
    with torch.no_grad():
        expected = model(torch.tensor([IDS])).logits[0].numpy()
    with opened(tmp_path) as llm:
        np.testing.assert_allclose(llm.classify([IDS], RAW)[0].outputs.probs, expected, atol=1e-4)
