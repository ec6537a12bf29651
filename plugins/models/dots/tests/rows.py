"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_DOTS = {
    "model_type": "dots1",
    "n_routed_experts": 9,
    "n_shared_experts": 2,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 36,
    "head_dim": 24,
}

ROWS = [
    TinyFamily(
        "dots1",
        "Dots1ForCausalLM",
        _DOTS | {"first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "head_dim": 20},
    ),
    TinyFamily(
        "dots1_window",
        "Dots1ForCausalLM",
        _DOTS
        | {
            "sliding_window": 9,
            "max_window_layers": 1,
            "n_group": 3,
            "topk_group": 2,
            "num_experts_per_tok": 1,
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
    ),
]
