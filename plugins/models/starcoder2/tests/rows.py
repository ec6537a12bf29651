"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

ROWS = [
    TinyFamily("starcoder2", "Starcoder2ForCausalLM", {"model_type": "starcoder2", "sliding_window": 13}),
    TinyFamily(
        "starcoder2_bare",
        "Starcoder2ForCausalLM",
        {
            "model_type": "starcoder2",
            "use_bias": False,
            "tie_word_embeddings": False,
            "hidden_act": "gelu",
            "norm_epsilon": 1e-3,
            "rope_theta": 1000.0,
        },
    ),
]

POOLED = [
    TinyFamily(
        "starcoder2_scored", "Starcoder2ForSequenceClassification", {"model_type": "starcoder2", "pad_token_id": 0}
    ),
]
