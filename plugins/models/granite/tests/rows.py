"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_FACTORS = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.3,
    "residual_multiplier": 0.6,
    "logits_scaling": 4.0,
}

_MAMBA = {"mamba_n_heads": 8, "mamba_d_state": 12, "mamba_chunk_size": 16}
_MAMBA_NATIVE = {"hidden_size": 128, "mamba_d_head": "auto"}

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
    TinyFamily(
        "granite_moe",
        "GraniteMoeForCausalLM",
        {"model_type": "granitemoe", **_FACTORS, "num_local_experts": 7, "num_experts_per_tok": 3},
    ),
    TinyFamily(
        "granite_moe_bias",
        "GraniteMoeForCausalLM",
        {
            "model_type": "granitemoe",
            "num_local_experts": 5,
            "num_experts_per_tok": 1,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "attention_multiplier": 0.2,
        },
    ),
    TinyFamily(
        "granite_moe_shared",
        "GraniteMoeSharedForCausalLM",
        {"model_type": "granitemoeshared", **_FACTORS, "num_local_experts": 6, "shared_intermediate_size": 44},
    ),
    TinyFamily(
        "granite_moe_unshared",
        "GraniteMoeSharedForCausalLM",
        {"model_type": "granitemoeshared", "num_local_experts": 3, "attention_multiplier": 0.2},
    ),
    TinyFamily(
        "granite_moe_windowed",
        "GraniteMoeSWAForCausalLM",
        {
            "model_type": "granitemoe_swa",
            **_FACTORS,
            "num_local_experts": 5,
            "num_hidden_layers": 4,
            "shared_intermediate_size": 52,
            "sliding_window": 6,
            "layer_rope_theta": [10000.0, 0, 500.0, 10000.0],
        },
    ),
    TinyFamily(
        "granite_hybrid",
        "GraniteMoeHybridForCausalLM",
        {
            "model_type": "granitemoehybrid",
            **_FACTORS,
            **_MAMBA,
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
            "num_local_experts": 6,
            "num_experts_per_tok": 3,
            "shared_intermediate_size": 44,
            "position_embedding_type": "nope",
        },
        native=_MAMBA_NATIVE,
    ),
    TinyFamily(
        "granite_hybrid_dense",
        "GraniteMoeHybridForCausalLM",
        {
            "model_type": "granitemoehybrid",
            **_MAMBA,
            "mamba_n_groups": 2,
            "mamba_proj_bias": True,
            "layer_types": ["full_attention", "linear_attention", "linear_attention"],
            "num_local_experts": 0,
            "shared_intermediate_size": 56,
            "position_embedding_type": "rope",
            "attention_multiplier": 0.2,
            "time_step_limit": [0.5, 0.9],
            "tie_word_embeddings": True,
        },
        native=_MAMBA_NATIVE,
    ),
]
