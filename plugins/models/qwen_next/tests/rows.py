"""Tiny checkpoints of this family."""

from __future__ import annotations

from core.testing.families import TinyFamily

_LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 20,
}
_EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 28,
}
_TYPES = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
_COMMON = {**_LINEAR, "num_hidden_layers": 4, "head_dim": 24, "layer_types": _TYPES}

ROWS = [
    TinyFamily("qwen3_next", "Qwen3NextForCausalLM", {"model_type": "qwen3_next", **_COMMON, **_EXPERTS}),
    TinyFamily(
        "qwen3_next_mixed",
        "Qwen3NextForCausalLM",
        {
            "model_type": "qwen3_next",
            **_COMMON,
            **_EXPERTS,
            "layer_types": None,
            "full_attention_interval": 2,
            "decoder_sparse_step": 2,
            "linear_conv_kernel_dim": 3,
            "attention_bias": True,
            "norm_topk_prob": False,
        },
    ),
    TinyFamily("qwen3_5", "Qwen3_5ForCausalLM", {"model_type": "qwen3_5_text", **_COMMON}),
    TinyFamily("qwen3_5_moe", "Qwen3_5MoeForCausalLM", {"model_type": "qwen3_5_moe_text", **_COMMON, **_EXPERTS}),
]
