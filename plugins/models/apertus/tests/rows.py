"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}

ROWS = [
    TinyFamily("apertus", "ApertusForCausalLM", {"model_type": "apertus", "rope_scaling": _LLAMA3}),
    TinyFamily(
        "apertus_bias",
        "ApertusForCausalLM",
        {
            "model_type": "apertus",
            "attention_bias": True,
            "tie_word_embeddings": True,
            "num_key_value_heads": None,
            "hidden_act": "relu2",
            "head_dim": 24,
        },
    ),
]
