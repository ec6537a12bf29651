"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}

ROWS = [
    TinyFamily("arcee", "ArceeForCausalLM", {"model_type": "arcee", "rope_scaling": _YARN}),
    TinyFamily(
        "arcee_bias",
        "ArceeForCausalLM",
        {
            "model_type": "arcee",
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "head_dim": 24,
            "num_key_value_heads": None,
        },
    ),
]

POOLED = [
    TinyFamily("arcee_scored", "ArceeForSequenceClassification", {"model_type": "arcee", "pad_token_id": 0}),
]
