"""A tiny configuration for core's conformance kit; imported by nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import ModelSample


def samples() -> Iterator[ModelSample]:
    """Yield GPT-2 as transformers configures it, small."""
    sizes = {"n_positions": 256, "n_embd": 64, "n_layer": 3, "n_head": 4}
    yield ModelSample("tiny", "GPT2LMHeadModel", "gpt2", sizes)
    yield ModelSample(
        "untied, narrow, relu",
        "GPT2LMHeadModel",
        "gpt2",
        {**sizes, "tie_word_embeddings": False, "n_inner": 48, "activation_function": "relu"},
    )
