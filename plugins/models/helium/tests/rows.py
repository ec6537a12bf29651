"""Tiny checkpoints of this family. Its queries have as many numbers as a hidden state."""

from __future__ import annotations

from core_testing.families import TinyFamily

_HEADS_OF_32 = {"hidden_size": 128, "head_dim": 32}

ROWS = [
    TinyFamily("helium", "HeliumForCausalLM", {"model_type": "helium", "head_dim": 20}, native=_HEADS_OF_32),
    TinyFamily(
        "helium_bias",
        "HeliumForCausalLM",
        {
            "model_type": "helium",
            "head_dim": 20,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "rope_theta": 500.0,
        },
        native=_HEADS_OF_32,
    ),
]

POOLED = [
    TinyFamily(
        "helium_scored", "HeliumForSequenceClassification", {"model_type": "helium", "pad_token_id": 0, "head_dim": 20}
    ),
]
