"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_HUNYUAN = {"model_type": "hunyuan_v1_dense", "head_dim": 24}
_ALPHA = {"type": "dynamic", "alpha": 50.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0}

_MOE = {"model_type": "hunyuan_v1_moe", "head_dim": 24, "num_experts": 5, "moe_topk": 2}
_THIRD = {
    "model_type": "hy_v3",
    "head_dim": 24,
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 36,
}

ROWS = [
    TinyFamily(
        "hunyuan",
        "HunYuanDenseV1ForCausalLM",
        _HUNYUAN | {"rope_scaling": _ALPHA, "use_qk_norm": True, "tie_word_embeddings": True},
    ),
    TinyFamily(
        "hunyuan_plain",
        "HunYuanDenseV1ForCausalLM",
        _HUNYUAN | {"attention_bias": True, "rope_theta": 500.0, "head_dim": 20},
    ),
    TinyFamily("hunyuan_moe", "HunYuanMoEV1ForCausalLM", _MOE | {"rope_scaling": _ALPHA, "moe_topk": [3, 1, 2]}),
    TinyFamily(
        "hunyuan_moe_plain",
        "HunYuanMoEV1ForCausalLM",
        _MOE | {"moe_topk": 2, "attention_bias": True, "tie_word_embeddings": True, "rope_theta": 500.0},
    ),
    TinyFamily("hy_v3", "HYV3ForCausalLM", _THIRD),
    TinyFamily(
        "hy_v3_kinds",
        "HYV3ForCausalLM",
        _THIRD
        | {
            "mlp_layer_types": ["sparse", "dense", "sparse"],
            "num_experts_per_tok": 1,
            "num_shared_experts": 2,
            "router_scaling_factor": 1.3,
            "attention_bias": True,
            "enable_moe_fp32_combine": False,
            "tie_word_embeddings": True,
        },
    ),
]

POOLED = [
    TinyFamily("hunyuan_scores", "HunYuanDenseV1ForSequenceClassification", _HUNYUAN | {"num_labels": 3}),
    TinyFamily("hunyuan_states", "HunYuanDenseV1Model", _HUNYUAN),
    TinyFamily("hunyuan_moe_scores", "HunYuanMoEV1ForSequenceClassification", _MOE | {"num_labels": 3}),
    TinyFamily("hunyuan_moe_states", "HunYuanMoEV1Model", _MOE),
]
