"""Tiny checkpoints of these families."""

from __future__ import annotations

from core_testing.families import TinyFamily

ROWS = [
    TinyFamily("mamba", "MambaForCausalLM", {"model_type": "mamba", "state_size": 6}, native={}),
    TinyFamily(
        "mamba_biased",
        "MambaForCausalLM",
        {
            "model_type": "mamba",
            "use_bias": True,
            "use_conv_bias": False,
            "conv_kernel": 3,
            "time_step_rank": 7,
            "intermediate_size": None,
            "tie_word_embeddings": False,
        },
        native={},
    ),
    TinyFamily("falcon_mamba", "FalconMambaForCausalLM", {"model_type": "falcon_mamba", "state_size": 6}, native={}),
    TinyFamily(
        "mamba2",
        "Mamba2ForCausalLM",
        {"model_type": "mamba2", "num_heads": 8, "head_dim": 20, "n_groups": 2, "state_size": 12, "chunk_size": 16},
        native={},
    ),
    TinyFamily(
        "mamba2_limited",
        "Mamba2ForCausalLM",
        {
            "model_type": "mamba2",
            "num_heads": 10,
            "head_dim": 16,
            "n_groups": 1,
            "state_size": 12,
            "chunk_size": 16,
            "use_bias": True,
            "time_step_limit": [0.5, 0.9],
            "tie_word_embeddings": True,
        },
        native={},
    ),
]
