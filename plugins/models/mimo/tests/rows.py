"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_MIMO = {
    "model_type": "mimo_v2_flash",
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "n_routed_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 36,
    "sliding_window": 9,
    "head_dim": 24,
    "v_head_dim": 16,
}

ROWS = [
    TinyFamily("mimo_v2_flash", "MiMoV2FlashForCausalLM", _MIMO, native={"head_dim": 48, "v_head_dim": 32}),
    TinyFamily(
        "mimo_v2_flash_kinds",
        "MiMoV2FlashForCausalLM",
        _MIMO
        | {
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            "mlp_layer_types": ["sparse", "dense", "dense", "sparse"],
            "n_routed_experts": 8,
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.7,
            "attention_bias": True,
            "attention_value_scale": None,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.75},
            },
        },
        native={"head_dim": 48, "v_head_dim": 32},
    ),
]
