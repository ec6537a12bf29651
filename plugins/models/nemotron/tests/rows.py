"""Tiny checkpoints of this family."""

from __future__ import annotations

from core.testing.families import TinyFamily

ROWS = [
    TinyFamily("nemotron", "NemotronForCausalLM", {"model_type": "nemotron", "hidden_act": "relu2", "head_dim": 20}),
    TinyFamily(
        "nemotron_bias",
        "NemotronForCausalLM",
        {
            "model_type": "nemotron",
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "partial_rotary_factor": 0.25,
            "head_dim": 24,
            "norm_eps": 1e-3,
            "rope_theta": 1000.0,
        },
        spread=0.2,
    ),
]

POOLED = [
    TinyFamily(
        "nemotron_scored",
        "NemotronForSequenceClassification",
        {"model_type": "nemotron", "pad_token_id": 0, "hidden_act": "relu2"},
    ),
]
