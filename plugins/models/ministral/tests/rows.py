"""Tiny checkpoints of these families."""

from __future__ import annotations

from core_testing.families import TinyFamily

_YARN = {
    "type": "yarn",
    "rope_theta": 1000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16,
    "max_position_embeddings": 256,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.5,
}
_SLIDING, _FULL = "sliding_attention", "full_attention"

ROWS = [
    TinyFamily(
        "ministral",
        "MinistralForCausalLM",
        {
            "model_type": "ministral",
            "sliding_window": 11,
            "head_dim": 20,
            "num_hidden_layers": 4,
            "layer_types": [_SLIDING, _FULL, _SLIDING, _FULL],
        },
    ),
    TinyFamily(
        "ministral_sliding",
        "MinistralForCausalLM",
        {"model_type": "ministral", "sliding_window": 33, "head_dim": 24, "rope_theta": 500.0},
    ),
    TinyFamily(
        "ministral3",
        "Ministral3ForCausalLM",
        {"model_type": "ministral3", "head_dim": 24, "rope_parameters": _YARN},
    ),
    TinyFamily(
        "ministral3_window",
        "Ministral3ForCausalLM",
        {
            "model_type": "ministral3",
            "head_dim": 20,
            "sliding_window": 33,
            "tie_word_embeddings": True,
            "rope_parameters": _YARN | {"mscale": 0.8, "mscale_all_dim": 0.4},
        },
    ),
]

POOLED = [
    TinyFamily(
        "ministral_scores",
        "MinistralForSequenceClassification",
        {"model_type": "ministral", "head_dim": 20, "num_labels": 3},
    ),
    TinyFamily(
        "ministral3_states",
        "Ministral3Model",
        {"model_type": "ministral3", "head_dim": 24, "rope_parameters": _YARN},
    ),
]
