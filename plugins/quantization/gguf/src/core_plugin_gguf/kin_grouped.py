"""Architectures with DeepSeek's experts: in groups, with shared ones, behind some dense layers. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_gguf.architecture import Architecture
from core_plugin_gguf.kin_experts import BIAS, BIASES, ROUTER, SILU, mixture, shared_mlp
from core_plugin_gguf.kin_llama import ATTENTION, MLP, MODEL, NORMS, QK_NORMS
from core_plugin_gguf.mixtures import GROUPED, bailing2, deepseek, gated_by, latent, mimo, picks
from core_plugin_gguf.reads import experts, present

_CORRECTION: Mapping[str, str] = {"exp_probs_b": "mlp.gate.e_score_correction_bias"}
_LATENT: Mapping[str, str] = {
    "attn_q": "self_attn.q_proj",
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "attn_output": "self_attn.o_proj",
}


_INDEX: Mapping[str, str] = {
    "indexer.attn_q_b": "self_attn.indexer.wq_b",
    "indexer.attn_k": "self_attn.indexer.wk",
    "indexer.k_norm": "self_attn.indexer.k_norm",
    "indexer.proj": "self_attn.indexer.weights_proj",
}


def _grouped(model: str, model_type: str, **differs: Any) -> Architecture:
    """Return experts in groups and shared ones behind some dense layers, with differences."""
    usual: dict[str, Any] = {
        "blocks": {**NORMS, **ATTENTION, **QK_NORMS, **MLP, **ROUTER, **shared_mlp("shared_experts"), **_CORRECTION},
        "bare": BIASES,
        "reads": (*GROUPED, gated_by("sigmoid"), BIAS),
    }
    return mixture(model, model_type, **{**usual, **differs})


def _latent(model: str, model_type: str, **differs: Any) -> Architecture:
    """Return DeepSeek's third version, with differences."""
    usual: dict[str, Any] = {
        "blocks": {**NORMS, **_LATENT, **MLP, **ROUTER, **shared_mlp("shared_experts"), **_CORRECTION},
        "partial": "qk_rope_head_dim",
        "head": "attention.key_length_mla",
        "joined": {"attn_v_b": ("attn_k_b", "self_attn.kv_b_proj")},
        "reads": (deepseek,),
    }
    return _grouped(model, model_type, **{**usual, **differs})


_PICKING: Mapping[str, Any] = {
    "blocks": {**NORMS, **_LATENT, **_INDEX, **MLP, **ROUTER, **shared_mlp("shared_experts"), **_CORRECTION},
    "reads": (deepseek, gated_by("sigmoid"), picks),
}

GROUPED_KIN: Mapping[str, Architecture] = {
    "deepseek2": _latent("DeepseekV3ForCausalLM", "deepseek_v3"),
    "deepseek32": _latent("DeepseekV32ForCausalLM", "deepseek_v32", **_PICKING),
    "glm-dsa": _latent("GlmMoeDsaForCausalLM", "glm_moe_dsa", **_PICKING),
    "glm4moe": _grouped(
        "Glm4MoeForCausalLM",
        "glm4_moe",
        blocks={
            "attn_norm": "input_layernorm",
            "post_attention_norm": "post_attention_layernorm",
            **ATTENTION,
            **QK_NORMS,
            **MLP,
            **ROUTER,
            **shared_mlp("shared_experts"),
            **_CORRECTION,
        },
        partial="partial_rotary_factor",
        reads=(*GROUPED, gated_by("sigmoid"), BIAS, present("attn_q_norm.weight", "use_qk_norm")),
    ),
    "dots1": _grouped("Dots1ForCausalLM", "dots1"),
    "mimo2": _grouped(
        "MiMoV2FlashForCausalLM",
        "mimo_v2_flash",
        blocks={
            **NORMS,
            **ATTENTION,
            "attn_sinks": "self_attn.attention_sink_bias",
            **MLP,
            **ROUTER,
            **_CORRECTION,
        },
        bare=BIASES | {"attn_sinks"},
        keys={"rms_norm_eps": "layernorm_epsilon"},
        partial="partial_rotary_factor",
        reads=(*GROUPED, mimo, BIAS),
    ),
    "bailingmoe2": _grouped(
        "BailingMoeV2ForCausalLM",
        "bailing_moe_v2",
        blocks={
            **NORMS,
            "attn_qkv": "attention.query_key_value",
            "attn_q_norm": "attention.query_layernorm",
            "attn_k_norm": "attention.key_layernorm",
            "attn_output": "attention.dense",
            **MLP,
            **ROUTER,
            **shared_mlp("shared_experts"),
            "exp_probs_b": "mlp.gate.expert_bias",
        },
        modules={**MODEL, "token_embd": "model.word_embeddings"},
        partial="partial_rotary_factor",
        reads=(
            *GROUPED,
            *experts(),
            gated_by("sigmoid", "score_function"),
            bailing2,
            present("attn_qkv.bias", "use_qkv_bias"),
        ),
        values={**SILU, "moe_router_enable_expert_bias": True, "use_rmsnorm": True},
    ),
    # No experts: latent attention alone. ggml's runtime knows the factors without the file saying them.
    "minicpm3": Architecture(
        model="MiniCPM3ForCausalLM",
        model_type="minicpm3",
        blocks={**NORMS, **_LATENT, **MLP},
        modules=MODEL,
        partial="qk_rope_head_dim",
        reads=(latent, present("ffn_up.bias", "mlp_bias")),
        values={**SILU, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256},
    ),
}
