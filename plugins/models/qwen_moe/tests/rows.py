"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 36}

ROWS = [
    TinyFamily("qwen3_moe", "Qwen3MoeForCausalLM", {"model_type": "qwen3_moe", **_EXPERTS, "norm_topk_prob": True}),
    TinyFamily(
        "qwen3_moe_mixed",
        "Qwen3MoeForCausalLM",
        {
            "model_type": "qwen3_moe",
            **_EXPERTS,
            "num_hidden_layers": 4,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [3],
            "attention_bias": True,
            "head_dim": 24,
        },
    ),
    TinyFamily(
        "qwen2_moe",
        "Qwen2MoeForCausalLM",
        {"model_type": "qwen2_moe", **_EXPERTS, "shared_expert_intermediate_size": 44},
    ),
    TinyFamily(
        "qwen2_moe_window",
        "Qwen2MoeForCausalLM",
        {
            "model_type": "qwen2_moe",
            **_EXPERTS,
            "shared_expert_intermediate_size": 44,
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 1,
            "norm_topk_prob": True,
            "qkv_bias": False,
        },
    ),
]
