"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_WITHOUT = dict.fromkeys(
    (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
    )
)
_SIZES = {"model_type": "dbrx", **_WITHOUT, "d_model": 80, "n_heads": 4, "n_layers": 3, "max_seq_len": 256}
_WIDE = {"d_model": 128}


def _theta(base):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": base}}


ROWS = [
    TinyFamily(
        "dbrx",
        "DbrxForCausalLM",
        {
            **_SIZES,
            "attn_config": {"clip_qkv": 1.1, "kv_n_heads": 2, "rope_theta": 5000.0},
            "ffn_config": {"ffn_hidden_size": 36, "moe_num_experts": 7, "moe_top_k": 3},
            **_theta(5000.0),
        },
        native=_WIDE,
    ),
    TinyFamily(
        "dbrx_unlike",
        "DbrxForCausalLM",
        {
            **_SIZES,
            "attn_config": {"clip_qkv": 50.0, "kv_n_heads": 4, "rope_theta": 10000.0},
            "ffn_config": {
                "ffn_hidden_size": 44,
                "moe_num_experts": 5,
                "moe_top_k": 2,
                "moe_normalize_expert_weights": None,
                "ffn_act_fn": {"name": "gelu"},
            },
        },
        native=_WIDE,
    ),
]
