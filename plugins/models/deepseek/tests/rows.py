"""Tiny checkpoints of these families."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
_INDEX = {"index_topk": 8, "index_n_heads": 6, "index_head_dim": 20}
"""Of 60 positions 8 are seen; heads enough that hardly any two scores are equal (0)."""

_YARN = {
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 0.7,
    "mscale_all_dim": 1.0,
}


def _first(config: Mapping[str, Any]) -> Any:
    """Return Llama's decoder with the experts of the second version, which are those of the first without a factor."""
    import transformers
    from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe

    values = {key: value for key, value in config.items() if key not in ("architectures", "model_type")}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**values, attn_implementation="eager"))
    for layer in model.model.layers[config["first_k_dense_replace"] :]:
        layer.mlp = DeepseekV2Moe(transformers.DeepseekV2Config(**values))
    return model


def _apart(name: str, tensor: Any) -> list[tuple[str, Any]]:
    """Return the tensors of each expert as checkpoints have them."""
    if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return [(name, tensor)]
    path, _, module = name.rpartition(".")
    parts = {"down_proj": tensor}
    if module == "gate_up_proj":
        parts = dict(zip(("gate_proj", "up_proj"), tensor.chunk(2, dim=1), strict=True))
    return [(f"{path}.{i}.{part}.weight", one) for part, every in parts.items() for i, one in enumerate(every)]


def _row(name: str, version: str, **config: object) -> TinyFamily:
    values = {"model_type": f"deepseek_{version.lower()}", **_LATENT, **_EXPERTS, **config}
    return TinyFamily(name, f"Deepseek{version}ForCausalLM", values, native={})


def _picking(row: TinyFamily) -> TinyFamily:
    """Return a row of a model that picks positions, whether or not the native attention of a CPU has latent layers."""
    return replace(row, lacks="(latent, )?picks")


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
    ),
    TinyFamily(
        "deepseek_moe",
        "DeepseekForCausalLM",
        {"model_type": "deepseek", **_EXPERTS, "routed_scaling_factor": 1.0},
        reference=_first,
        save=_apart,
    ),
    _picking(_row("deepseek_v32", "V32", n_group=4, topk_group=2, rope_scaling=_YARN, **_INDEX)),
    _picking(_row("deepseek_v32_dense", "V32", n_group=1, topk_group=1, **_INDEX | {"index_topk": 64})),
    _picking(
        TinyFamily(
            "glm_moe_dsa",
            "GlmMoeDsaForCausalLM",
            {
                "model_type": "glm_moe_dsa",
                **_LATENT,
                **_EXPERTS,
                **_INDEX,
                "num_hidden_layers": 4,
                "indexer_types": ["full", "shared", "full", "shared"],
                "n_group": 1,
                "topk_group": 1,
            },
            native={},
            programs=False,
        )
    ),
    _row("deepseek_v2_lite", "V2", q_lora_rank=None, topk_method="greedy", num_hidden_layers=4),
]
