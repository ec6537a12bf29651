"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_SIZES = {"mamba_d_ssm": 96, "mamba_n_heads": 8, "mamba_d_state": 12, "mamba_chunk_size": 16}

ROWS = [
    TinyFamily(
        "falcon_h1",
        "FalconH1ForCausalLM",
        {
            "model_type": "falcon_h1",
            **_SIZES,
            "lm_head_multiplier": 0.4,
            "embedding_multiplier": 3.0,
            "mlp_multipliers": [0.7, 1.3],
            "key_multiplier": 0.6,
            "attention_in_multiplier": 0.9,
            "attention_out_multiplier": 0.8,
            "ssm_multipliers": [0.8, 1.2, 0.9, 1.1, 0.7],
            "ssm_in_multiplier": 1.3,
            "ssm_out_multiplier": 0.6,
        },
    ),
    TinyFamily(
        "falcon_h1_normed",
        "FalconH1ForCausalLM",
        {
            "model_type": "falcon_h1",
            **_SIZES,
            "mamba_n_groups": 2,
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": False,
            "mamba_proj_bias": True,
            "projectors_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "ssm_multipliers": [0.8, 1.2, 0.9, 1.1, 0.7],
            "ssm_in_multiplier": 1.3,
            "ssm_out_multiplier": 0.6,
            "key_multiplier": 0.6,
            "tie_word_embeddings": True,
        },
    ),
    TinyFamily(
        "falcon_h1_norm_first",
        "FalconH1ForCausalLM",
        {
            "model_type": "falcon_h1",
            "mamba_d_ssm": None,
            "mamba_n_heads": 8,
            "mamba_d_state": 12,
            "mamba_chunk_size": 16,
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": True,
            "time_step_limit": [0.5, 0.9],
        },
    ),
]
