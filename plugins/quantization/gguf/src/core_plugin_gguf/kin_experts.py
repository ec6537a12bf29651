"""Architectures with mixtures of experts. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_gguf.architecture import Architecture
from core_plugin_gguf.kin_llama import ATTENTION, FACTORS, MIXTRAL, MLP, MODEL, NORMS, PAIRED, QK_NORMS
from core_plugin_gguf.mixtures import (
    count,
    dbrx,
    ernie,
    gated_by,
    gpt_oss,
    granite_moe,
    grok,
    llama4,
)
from core_plugin_gguf.reads import experts, flag, number, present, window

ROUTER: Mapping[str, str] = {"ffn_gate_inp": "mlp.gate"}
EXPERTS: Mapping[str, str] = {f"ffn_{part}_exps": f"mlp.experts.{{}}.{part}_proj" for part in ("gate", "up", "down")}
_SPARSE: Mapping[str, str] = {"ffn_gate_inp": "block_sparse_moe.gate"}
BIASES = frozenset({"exp_probs_b"})
SILU = {"hidden_act": "silu"}
BIAS = present("attn_q.bias", "attention_bias")


def shared_mlp(module: str) -> Mapping[str, str]:
    """Return the modules of the MLP that all tokens share."""
    return {f"ffn_{part}_shexp": f"mlp.{module}.{part}_proj" for part in ("gate", "up", "down")}


def mixture(model: str, model_type: str, **differs: Any) -> Architecture:
    """Return Llama's attention and experts in all layers, with differences."""
    usual: dict[str, Any] = {
        "blocks": {**NORMS, **ATTENTION, **ROUTER},
        "modules": MODEL,
        "stacked": EXPERTS,
        "experts": True,
        "reads": experts(expert_feed_forward_length="moe_intermediate_size"),
        "values": SILU,
    }
    return Architecture(model=model, model_type=model_type, **{**usual, **differs})


EXPERTS_KIN: Mapping[str, Architecture] = {
    "qwen2moe": mixture(
        "Qwen2MoeForCausalLM",
        "qwen2_moe",
        blocks={
            **NORMS,
            **ATTENTION,
            **ROUTER,
            **shared_mlp("shared_expert"),
            "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
        },
        rows=frozenset({"ffn_gate_inp_shexp"}),
        reads=experts(
            expert_feed_forward_length="moe_intermediate_size",
            expert_shared_feed_forward_length="shared_expert_intermediate_size",
        ),
        values={**SILU, "norm_topk_prob": False},
    ),
    "qwen3moe": mixture(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        blocks={**NORMS, **ATTENTION, **QK_NORMS, **ROUTER},
        values={**SILU, "norm_topk_prob": True},
    ),
    "olmoe": mixture(
        "OlmoeForCausalLM",
        "olmoe",
        blocks={**NORMS, **ATTENTION, **QK_NORMS, **ROUTER},
        reads=(*experts(), BIAS, number("attention.clamp_kqv", "clip_qkv")),
        values={**SILU, "norm_topk_prob": False},
    ),
    "deepseek": mixture(
        "DeepseekForCausalLM",
        "deepseek",
        blocks={**NORMS, **ATTENTION, **MLP, **ROUTER, **shared_mlp("shared_experts")},
        paired=PAIRED,
        reads=(
            *experts("n_routed_experts", expert_feed_forward_length="moe_intermediate_size"),
            count("expert_shared_count", "n_shared_experts"),
            count("leading_dense_block_count", "first_k_dense_replace"),
            BIAS,
        ),
        values={**SILU, "norm_topk_prob": False},
    ),
    "minimax-m2": mixture(
        "MiniMaxM2ForCausalLM",
        "minimax_m2",
        blocks={**NORMS, **ATTENTION, **QK_NORMS, **_SPARSE, "exp_probs_b": "block_sparse_moe.e_score_correction_bias"},
        bare=BIASES,
        stacked=MIXTRAL,
        partial="rotary_dim",
        reads=(*experts("num_local_experts"), gated_by("sigmoid", "scoring_func")),
    ),
    "ernie4_5-moe": mixture(
        "Ernie4_5_MoeForCausalLM",
        "ernie4_5_moe",
        blocks={
            **NORMS,
            **ATTENTION,
            **MLP,
            **ROUTER,
            **shared_mlp("shared_experts"),
            "exp_probs_b": "mlp.moe_statics.e_score_correction_bias",
        },
        bare=BIASES,
        rows=BIASES,
        reads=(
            *experts("moe_num_experts", "moe_k", expert_feed_forward_length="moe_intermediate_size"),
            count("expert_shared_count", "moe_num_shared_experts"),
            count("leading_dense_block_count", "moe_layer_start_index"),
            count("interleave_moe_layer_step", "moe_layer_interval", 1),
            ernie,
            present("attn_q.bias", "use_bias"),
        ),
    ),
    "hunyuan-moe": mixture(
        "HunYuanMoEV1ForCausalLM",
        "hunyuan_v1_moe",
        blocks={
            **NORMS,
            **ATTENTION,
            "attn_q_norm": "self_attn.query_layernorm",
            "attn_k_norm": "self_attn.key_layernorm",
            "ffn_gate_inp": "mlp.gate.wg",
            **shared_mlp("shared_mlp"),
        },
        reads=(
            *experts("num_experts", "moe_topk", expert_feed_forward_length="moe_intermediate_size"),
            count("expert_shared_count", "num_shared_expert", 1),
            BIAS,
        ),
    ),
    "granitemoe": mixture(
        "GraniteMoeForCausalLM",
        "granitemoe",
        blocks={
            **NORMS,
            **ATTENTION,
            "ffn_gate_inp": "block_sparse_moe.router.layer",
            "ffn_gate_shexp": "shared_mlp.gate_proj",
            "ffn_up_shexp": "shared_mlp.up_proj",
            "ffn_down_shexp": "shared_mlp.output_linear",
        },
        stacked={
            "ffn_gate_exps": "block_sparse_moe.{}.gate_proj",
            "ffn_up_exps": "block_sparse_moe.{}.up_proj",
            "ffn_down_exps": "block_sparse_moe.{}.output_linear",
        },
        paired=PAIRED,
        reads=(*FACTORS, *experts("num_local_experts"), granite_moe),
    ),
    "gpt-oss": mixture(
        "GptOssForCausalLM",
        "gpt_oss",
        blocks={
            "attn_norm": "input_layernorm",
            "post_attention_norm": "post_attention_layernorm",
            **ATTENTION,
            "attn_sinks": "self_attn.sinks",
            "ffn_gate_inp": "mlp.router",
        },
        bare=frozenset({"attn_sinks"}),
        reads=(*experts("num_local_experts"), window(2), gpt_oss, BIAS),
    ),
    "llama4": mixture(
        "Llama4ForCausalLM",
        "llama4_text",
        blocks={
            **NORMS,
            **ATTENTION,
            **{name: f"feed_forward.{path.removeprefix('mlp.')}" for name, path in MLP.items()},
            "ffn_gate_inp": "feed_forward.router",
            **{f"ffn_{part}_shexp": f"feed_forward.shared_expert.{part}_proj" for part in ("gate", "up", "down")},
        },
        stacked={name: path.replace("mlp.", "feed_forward.") for name, path in EXPERTS.items()},
        reads=(*experts("num_local_experts"), llama4, BIAS),
    ),
    "phimoe": mixture(
        "PhimoeForCausalLM",
        "phimoe",
        blocks={**NORMS, **ATTENTION, **_SPARSE},
        stacked=MIXTRAL,
        reads=(*experts("num_local_experts"), window(), BIAS, present("output.bias", "lm_head_bias")),
    ),
    "bailingmoe": mixture(
        "BailingMoeForCausalLM",
        "bailing_moe",
        blocks={
            **NORMS,
            **{name: path.replace("self_attn", "attention") for name, path in ATTENTION.items()},
            "attn_output": "attention.dense",
            **ROUTER,
            **shared_mlp("shared_experts"),
        },
        modules={**MODEL, "token_embd": "model.word_embeddings"},
        paired=PAIRED,
        reads=(
            *experts(expert_feed_forward_length="moe_intermediate_size"),
            count("expert_shared_count", "num_shared_experts"),
            count("leading_dense_block_count", "first_k_dense_replace"),
            flag("expert_weights_norm", "norm_topk_prob", default=False),
            number("expert_weights_scale", "routed_scaling_factor", 1.0),
            present("attn_q.bias", "use_qkv_bias"),
        ),
        values={**SILU, "qkv_fused": False},
    ),
    "arctic": mixture(
        "ArcticForCausalLM",
        "arctic",
        blocks={
            "attn_norm": "input_layernorm",
            "ffn_norm": "residual_layernorm",
            "ffn_norm_exps": "post_attention_layernorm",
            **ATTENTION,
            "ffn_gate": "residual_mlp.w1",
            "ffn_down": "residual_mlp.w2",
            "ffn_up": "residual_mlp.w3",
            **_SPARSE,
        },
        stacked=MIXTRAL,
        paired=PAIRED,
        inner="",
        reads=experts("num_local_experts"),
        values={**SILU, "moe_layer_frequency": 1, "use_residual": True},
    ),
    "dbrx": Architecture(
        model="DbrxForCausalLM",
        model_type="dbrx",
        blocks={
            "attn_norm": "norm_attn_norm.norm_1",
            "attn_qkv": "norm_attn_norm.attn.Wqkv",
            "attn_output": "norm_attn_norm.attn.out_proj",
            "attn_output_norm": "norm_attn_norm.norm_2",
            "ffn_gate_inp": "ffn.router.layer",
        },
        modules={"token_embd": "transformer.wte", "output_norm": "transformer.norm_f", "output": "lm_head"},
        layer="transformer.blocks.{}",
        layer_norm=True,
        eps=None,
        stacked={
            f"ffn_{part}_exps": f"ffn.experts.mlp.{{}}.{name}"
            for part, name in (("gate", "w1"), ("up", "v1"), ("down", "w2"))
        },
        experts=True,
        keys={
            "hidden_size": "d_model",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "max_position_embeddings": "max_seq_len",
        },
        reads=(dbrx,),
    ),
    "grok": mixture(
        "Grok1ForCausalLM",
        "grok-1",
        blocks={
            "attn_norm": "pre_attn_norm",
            "attn_output_norm": "post_attn_norm",
            "ffn_norm": "pre_moe_norm",
            "post_ffw_norm": "post_moe_norm",
            **ATTENTION,
            **MLP,
            **_SPARSE,
        },
        variants={"layer_output_norm": {"layer_output_norm": "post_moe_norm"}},  # Grok-1's name
        stacked=MIXTRAL,
        reads=(*experts("num_local_experts"), grok),
        values={},
    ),
}
