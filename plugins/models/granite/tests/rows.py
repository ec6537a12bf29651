"""Tiny checkpoints of this family."""

from __future__ import annotations

from core.testing.families import TinyFamily

_FACTORS = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.3,
    "residual_multiplier": 0.6,
    "logits_scaling": 4.0,
}

ROWS = [
    TinyFamily("granite", "GraniteForCausalLM", {"model_type": "granite", **_FACTORS}),
    TinyFamily(
        "granite_bias",
        "GraniteForCausalLM",
        {"model_type": "granite", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    TinyFamily(
        "granite_windowed",
        "GraniteSWAForCausalLM",
        {
            "model_type": "granite_swa",
            **_FACTORS,
            "num_hidden_layers": 4,
            "sliding_window": 6,
            "layer_rope_theta": [10000.0, 0, 500.0, 10000.0],
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
        },
    ),
]
