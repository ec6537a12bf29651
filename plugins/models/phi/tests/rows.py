"""Tiny checkpoints of these families."""

from __future__ import annotations

from core_testing.families import TinyFamily

_PHI = {"model_type": "phi", "partial_rotary_factor": 0.4, "num_key_value_heads": None}
_LONG = {
    "type": "longrope",
    "short_factor": [1.0 + 0.1 * pair for pair in range(8)],
    "long_factor": [1.0 + 0.7 * pair for pair in range(8)],
}
"""For heads of 20 of which 16 dimensions are rotated."""

_HEADS_OF_32 = {"hidden_size": 128}


def of_one_magnitude(pairs):
    """Return Phi-3.5-MoE's LongRoPE, with one factor of sines and cosines."""
    return {
        "type": "longrope",
        "short_factor": [1.0 + 0.1 * pair for pair in range(pairs)],
        "long_factor": [1.0 + 0.7 * pair for pair in range(pairs)],
        "short_mscale": 1.2,
        "long_mscale": 1.2,
        "original_max_position_embeddings": 128,
    }


ROWS = [
    TinyFamily("phi", "PhiForCausalLM", _PHI, native=_HEADS_OF_32 | {"partial_rotary_factor": 0.5}),
    TinyFamily(
        "phi_norms",
        "PhiForCausalLM",
        _PHI | {"qk_layernorm": True, "num_key_value_heads": 2, "hidden_act": "gelu"},
        native=_HEADS_OF_32 | {"partial_rotary_factor": 0.5},
    ),
    TinyFamily("phi3", "Phi3ForCausalLM", {"model_type": "phi3"}, native=_HEADS_OF_32),
    TinyFamily(
        "phi3_window",
        "Phi3ForCausalLM",
        {"model_type": "phi3", "sliding_window": 33, "num_key_value_heads": None, "tie_word_embeddings": True},
        native=_HEADS_OF_32,
    ),
    TinyFamily(  # every context of the suite is longer than the original one
        "phi3_long",
        "Phi3ForCausalLM",
        {
            "model_type": "phi3",
            "partial_rotary_factor": 0.8,
            "rope_scaling": _LONG,
            "original_max_position_embeddings": 8,
            "tie_word_embeddings": True,
        },
        native={"hidden_size": 128, "partial_rotary_factor": 0.5},
    ),
    TinyFamily(
        "phi3_short",
        "Phi3ForCausalLM",
        {
            "model_type": "phi3",
            "partial_rotary_factor": 0.8,
            "rope_scaling": _LONG | {"type": "su", "original_max_position_embeddings": 128},
        },
        native={"hidden_size": 128, "partial_rotary_factor": 0.5},
    ),
    TinyFamily(
        "phimoe",
        "PhimoeForCausalLM",
        {"model_type": "phimoe", "num_local_experts": 7, "router_jitter_noise": 0.1},
        native=_HEADS_OF_32,
        programs=False,  # SparseMixer is torch
    ),
    TinyFamily(
        "phimoe_long",
        "PhimoeForCausalLM",
        {
            "model_type": "phimoe",
            "num_local_experts": 3,
            "sliding_window": 13,
            "attention_bias": True,
            "lm_head_bias": True,
            "rope_scaling": of_one_magnitude(10),
        },
        native=_HEADS_OF_32 | {"rope_scaling": of_one_magnitude(16)},
        programs=False,
    ),
]

POOLED = [
    TinyFamily("phi_scores", "PhiForSequenceClassification", _PHI | {"num_labels": 3}),
    TinyFamily("phi_states", "PhiModel", _PHI),
    TinyFamily("phi3_scores", "Phi3ForSequenceClassification", {"model_type": "phi3", "num_labels": 1}),
    TinyFamily("phi3_states", "Phi3Model", {"model_type": "phi3"}),
    TinyFamily("phimoe_scores", "PhimoeForSequenceClassification", {"model_type": "phimoe", "num_labels": 3}),
    TinyFamily("phimoe_states", "PhimoeModel", {"model_type": "phimoe"}),
]
