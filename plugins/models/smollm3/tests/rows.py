"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

ROWS = [
    TinyFamily("smollm3", "SmolLM3ForCausalLM", {"model_type": "smollm3", "num_hidden_layers": 5}),
    TinyFamily(
        "smollm3_listed",
        "SmolLM3ForCausalLM",
        {
            "model_type": "smollm3",
            "no_rope_layers": [0, 1, 1],
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": False,
            "rope_theta": 5000.0,
        },
    ),
    TinyFamily(
        "smollm3_window",
        "SmolLM3ForCausalLM",
        {"model_type": "smollm3", "no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 13},
    ),
]

POOLED = [
    TinyFamily("smollm3_scored", "SmolLM3ForSequenceClassification", {"model_type": "smollm3", "pad_token_id": 0}),
]
