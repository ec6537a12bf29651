"""Tiny checkpoints of these families."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_testing.families import TinyFamily

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
_INDEX = {"index_topk": 8, "index_n_heads": 18, "index_head_dim": 20}
"""Of 60 positions 8 are seen; heads enough that no two scores are equal (0): which is seen then, nobody says."""

_YARN = {
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 0.7,
    "mscale_all_dim": 1.0,
}


_FOURTH = {
    "model_type": "deepseek_v4",
    "num_key_value_heads": 1,
    "head_dim": 24,
    "q_lora_rank": 28,
    "qk_rope_head_dim": 12,
    "sliding_window": 10,
    "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},
    "index_topk": 5,
    "index_n_heads": 18,
    "index_head_dim": 20,
    "o_groups": 2,
    "o_lora_rank": 14,
    "n_routed_experts": 12,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 36,
    "swiglu_limit": 2.0,
    "hc_mult": 3,
    "hc_sinkhorn_iters": 4,
    "num_hidden_layers": 4,
    "layer_types": [
        "sliding_attention",
        *["compressed_sparse_attention", "heavily_compressed_attention"],
        "compressed_sparse_attention",
    ],
    "num_hash_layers": 2,
    "intermediate_size": None,
}
"""Ratios that divide blocks of 4 tokens; a row of 60 has 30 entries of which 5 are seen."""


def _fourth(config: Mapping[str, Any]) -> Any:
    """Return the fourth version with tables of experts: transformers makes them zeros."""
    import torch
    import transformers

    given = json.loads(json.dumps({key: value for key, value in config.items() if key != "architectures"}))
    made = transformers.AutoConfig.for_model(**given)
    made._attn_implementation = "eager"
    model = transformers.DeepseekV4ForCausalLM(made)
    for layer in model.model.layers[: config["num_hash_layers"]]:
        table = layer.mlp.gate.tid2eid
        table.copy_(torch.rand(len(table), config["n_routed_experts"]).topk(table.shape[1]).indices)
    return model


_MAKERS = {
    "model.layers.": "layers.",
    "model.embed_tokens.": "embed.",
    "model.norm.": "norm.",
    "model.hc_head.hc_": "hc_head_",
    "lm_head.": "head.",
    ".self_attn.compressor.indexer.scorer.weights_proj.": ".attn.indexer.weights_proj.",
    ".self_attn.compressor.indexer.q_b_proj.": ".attn.indexer.wq_b.",
    ".self_attn.compressor.indexer.": ".attn.indexer.compressor.",
    ".self_attn.": ".attn.",
    ".mlp.": ".ffn.",
    ".input_layernorm.": ".attn_norm.",
    ".post_attention_layernorm.": ".ffn_norm.",
    ".attn_hc.": ".hc_attn_",
    ".ffn_hc.": ".hc_ffn_",
    ".sinks": ".attn_sink",
    ".kv_norm.": ".norm.",
    ".position_bias": ".ape",
    ".q_a_proj.": ".wq_a.",
    ".q_b_proj.": ".wq_b.",
    ".q_a_norm.": ".q_norm.",
    ".kv_proj.": ".wkv.",
    ".o_a_proj.": ".wo_a.",
    ".o_b_proj.": ".wo_b.",
    ".gate.e_score_correction_bias": ".gate.bias",
    ".shared_experts.gate_proj.": ".shared_experts.w1.",
    ".shared_experts.down_proj.": ".shared_experts.w2.",
    ".shared_experts.up_proj.": ".shared_experts.w3.",
    ".compressor.gate_proj.": ".compressor.wgate.",
}
"""transformers' names -> those of the makers' checkpoints."""


def _fourth_stored(name: str, tensor: Any) -> list[tuple[str, Any]]:
    """Return tensors as the makers' checkpoints have them: each expert's, by their names."""
    for begin, end in _MAKERS.items():
        name = name.replace(begin, end)
    path, _, last = name.rpartition(".")
    if last == "gate_up_proj":
        return [
            (f"{path}.{expert}.{part}.weight", half)
            for expert, both in enumerate(tensor)
            for part, half in zip(("w1", "w3"), both.chunk(2), strict=True)
        ]
    if last == "down_proj":
        return [(f"{path}.{expert}.w2.weight", one) for expert, one in enumerate(tensor)]
    return [(name, tensor)]


def _fourth_row(name: str, **config: Any) -> TinyFamily:
    return TinyFamily(
        name,
        "DeepseekV4ForCausalLM",
        {**_FOURTH, **config},
        reference=_fourth,
        save=_fourth_stored,
        programs="changes a tensor that is made once",
    )


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
    """Return a row of a model that picks positions: torch multiplies by the weights of its index heads, in float32."""
    return replace(row, programs=False)


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
        )
    ),
    _fourth_row("deepseek_v4", rope_scaling={**_YARN, "mscale": None, "mscale_all_dim": None}),
    _fourth_row("deepseek_v4_heavy", layer_types=["heavily_compressed_attention"] * 2, num_hidden_layers=2),
    _row("deepseek_v2_lite", "V2", q_lora_rank=None, topk_method="greedy", num_hidden_layers=4),
]
