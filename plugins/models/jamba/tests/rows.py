"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

ROWS = [
    TinyFamily(
        "jamba",
        "JambaForCausalLM",
        {
            "model_type": "jamba",
            "num_hidden_layers": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 3,
            "expert_layer_offset": 1,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "mamba_d_state": 6,
        },
        native={"hidden_size": 128},
    ),
    TinyFamily(
        "jamba_dense",
        "JambaForCausalLM",
        {
            "model_type": "jamba",
            "attn_layer_period": 3,
            "attn_layer_offset": 0,
            "num_experts": 1,
            "num_experts_per_tok": 1,
            "mamba_d_state": 6,
            "mamba_d_conv": 3,
            "mamba_dt_rank": 7,
            "mamba_proj_bias": True,
            "mamba_conv_bias": False,
            "tie_word_embeddings": True,
        },
        native={"hidden_size": 128},
    ),
]
