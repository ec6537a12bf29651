"""Tiny encoders, transformers' reading of them, and one open `LLM` at a time."""

from __future__ import annotations

import pytest
import torch

from core import LLM
from core_testing.tinyencoders import reference_encoder, tiny_encoder

torch.set_num_threads(1)

TEXTS = [
    "the engine reads long prompts",
    "a worker",
    "every token counts several numbers, and then the cache plans the next step",
    "memory",
    "the server writes blocks of memory: one request, a scheduler, every token; the engine",
]


@pytest.fixture
def texts():
    return list(TEXTS)


@pytest.fixture
def opened():
    """Make an `LLM` that is closed after the test."""
    made = []

    def make(path, **options):
        llm = LLM(str(path), dtype="float32", threads=1, **options)
        made.append(llm)
        return llm

    yield make
    for llm in made:
        llm.close()


@pytest.fixture
def encoder(tmp_path):
    """Write a tiny encoder; return its directory and transformers' model with the same weights."""

    def make(architecture="BertModel", **overrides):
        directory = tiny_encoder(tmp_path / architecture, architecture, **overrides)
        return directory, reference_encoder(architecture, **overrides)

    return make


@pytest.fixture
def hidden():
    """Run transformers' model on one prompt alone, without padding; return its last hidden states."""

    def run(model, ids, **inputs):
        with torch.no_grad():
            base = getattr(model, model.base_model_prefix, model)
            return base(torch.tensor([ids]), **inputs).last_hidden_state[0]

    return run
