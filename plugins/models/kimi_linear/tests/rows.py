"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_SIZES = {
    "model_type": "kimi_linear",
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
_LISTED = {"kda_layers": [1, 2, 4], "full_attn_layers": [3], "head_dim": 12, "num_heads": 3}

ROWS = [
    TinyFamily(
        "kimi_linear",
        "KimiLinearForCausalLM",
        {**_SIZES, "linear_attn_config": {**_LISTED, "short_conv_kernel_size": 4}},
        native={},
    ),
    TinyFamily(
        "kimi_linear_grouped",
        "KimiLinearForCausalLM",
        {
            **_SIZES,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
            "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"],
            "linear_head_dim": 16,
            "linear_num_heads": 2,
            "linear_conv_kernel_dim": 3,
            "q_lora_rank": 28,
            "num_local_experts": 8,
            "n_group": 4,
            "topk_group": 2,
        },
        native={},
    ),
]
