"""Tiny checkpoints of these families."""

from __future__ import annotations

from core.testing.families import TinyFamily

_LATENT = {
    "kv_lora_rank": 24,
    "q_lora_rank": 28,
    "qk_nope_head_dim": 14,
    "qk_rope_head_dim": 12,
    "v_head_dim": 10,
    "num_key_value_heads": 4,
}
_EXPERTS = {
    "n_routed_experts": 12,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 36,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.7,
}
_YARN = {
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 0.7,
    "mscale_all_dim": 1.0,
}


def _row(name: str, version: str, **config: object) -> TinyFamily:
    model_type = {"V2": "deepseek_v2", "V3": "deepseek_v3"}[version]
    values = {"model_type": model_type, **_LATENT, **_EXPERTS, **config}
    return TinyFamily(name, f"Deepseek{version}ForCausalLM", values, native={}, programs=False, lacks="latent")


ROWS = [
    _row("deepseek_v3", "V3", n_group=4, topk_group=2),
    _row("deepseek_v3_yarn", "V3", n_group=1, topk_group=1, rope_scaling=_YARN, n_shared_experts=1),
    _row("deepseek_v3_halves", "V3", n_group=3, topk_group=1, rope_interleave=False, attention_bias=True),
    _row("deepseek_v2", "V2", topk_method="group_limited_greedy", n_group=4, topk_group=2, rope_scaling=_YARN),
    TinyFamily(
        "glm4_moe_lite",
        "Glm4MoeLiteForCausalLM",
        {
            "model_type": "glm4_moe_lite",
            **_LATENT,
            **_EXPERTS,
            "n_group": 2,
            "topk_group": 1,
            "mlp_layer_types": ["dense", "sparse", "sparse"],
            "rope_scaling": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 1.0},
        },
        native={},
        programs=False,
        lacks="latent",
    ),
    _row("deepseek_v2_lite", "V2", q_lora_rank=None, topk_method="greedy", num_hidden_layers=4),
]
