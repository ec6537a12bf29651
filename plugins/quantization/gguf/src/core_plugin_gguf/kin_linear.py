"""Linear attention and short convolutions beside attention: Qwen3-Next, Qwen3.5, LFM2, Kimi Linear, MiniMax-Text.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_gguf.architecture import Architecture
from core_plugin_gguf.kin_experts import BIASES, EXPERTS, ROUTER, SILU, shared_mlp
from core_plugin_gguf.kin_llama import ATTENTION, MIXTRAL, MLP, MODEL, NORMS, QK_NORMS
from core_plugin_gguf.linear import (
    dealt,
    delta_rule,
    kimi_linear,
    lfm2_moe,
    lightning,
    nested,
    projections,
    short_conv,
    steps,
)
from core_plugin_gguf.mixtures import GROUPED, gated_by
from core_plugin_gguf.reads import experts
from core_plugin_gguf.states import kernel

_DELTA: Mapping[str, str] = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    **ATTENTION,
    **QK_NORMS,
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt": "linear_attn.dt_bias",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
}
_SHARED: Mapping[str, str] = {
    **ROUTER,
    **shared_mlp("shared_expert"),
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
_MOE: Mapping[str, Any] = {
    "model": "Qwen3_5MoeForCausalLM",
    "model_type": "qwen3_5_moe_text",
    "blocks": {**_DELTA, **_SHARED},
    "reads": (
        delta_rule,
        *experts(
            expert_feed_forward_length="moe_intermediate_size",
            expert_shared_feed_forward_length="shared_expert_intermediate_size",
        ),
    ),
    "stacked": EXPERTS,
    "experts": True,
    "rows": frozenset({"ffn_gate_inp_shexp"}),
}
_FUSED = {"ssm_ba": "linear_attn.in_proj_ba", "ssm_in": "linear_attn.in_proj_qkvz"}
_DEALT = {
    "attn_qkv": dealt(keys=True),
    "attn_gate": dealt(),
    "ssm_beta": dealt(1),
    "ssm_alpha": dealt(1),
    "ssm_conv1d": dealt(keys=True),
    "ssm_a": dealt(1),
    "ssm_dt": dealt(1),
    "ssm_out": dealt(columns=True),
}


def _delta(**differs: Any) -> Architecture:
    """Return linear attention in most layers, with differences."""
    usual: dict[str, Any] = {
        "modules": MODEL,
        "values": SILU,
        "partial": "partial_rotary_factor",
        "uneven": True,
        "norm_offset": 1.0,
        "norm_offsets": {"ssm_norm": 0.0},
        "decays": frozenset({"ssm_a"}),
        "shapes": {"ssm_conv1d": kernel},
        "bare": frozenset({"ssm_a", "ssm_dt"}),
    }
    return Architecture(**{**usual, **differs})


_CONV: Mapping[str, str] = {
    "attn_norm": "operator_norm",
    "ffn_norm": "ffn_norm",
    **ATTENTION,
    "attn_output": "self_attn.out_proj",
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
    **{f"shortconv.{name}": f"conv.{name}" for name in ("conv", "in_proj", "out_proj")},
    "ffn_gate": "feed_forward.w1",
    "ffn_up": "feed_forward.w3",
    "ffn_down": "feed_forward.w2",
}
_LFM2: Mapping[str, Any] = {
    "modules": {"token_embd": "model.embed_tokens", "token_embd_norm": "model.embedding_norm", "output": "lm_head"},
    "eps": "norm_eps",
    "uneven": True,
    "shapes": {"shortconv.conv": kernel},
}
_W = (("gate", "w1"), ("down", "w2"), ("up", "w3"))

LINEAR_KIN: Mapping[str, Architecture] = {
    # The same model: Qwen3-Next's own checkpoints have what belongs to one head of keys together, these files do not.
    "qwen3next": _delta(
        **{
            **_MOE,
            "blocks": {**_MOE["blocks"], "ssm_ba": "linear_attn.in_proj_ba", "ssm_in": "linear_attn.in_proj_qkvz"},
        },
        layouts={"ssm_ba": steps, "ssm_in": projections},
    ),
    "qwen35": _delta(
        model="Qwen3_5ForCausalLM",
        model_type="qwen3_5_text",
        blocks={**_DELTA, **MLP},
        reads=(delta_rule,),
        layouts=_DEALT,
    ),
    "qwen35moe": _delta(**_MOE, layouts=_DEALT),
    "lfm2": Architecture(model="Lfm2ForCausalLM", model_type="lfm2", blocks=_CONV, reads=(short_conv,), **_LFM2),
    "lfm2moe": Architecture(
        model="Lfm2MoeForCausalLM",
        model_type="lfm2_moe",
        blocks={**_CONV, "ffn_gate_inp": "feed_forward.gate", "exp_probs_b": "feed_forward.expert_bias"},
        reads=(
            short_conv,
            *experts(expert_feed_forward_length="moe_intermediate_size"),
            gated_by("sigmoid"),
            lfm2_moe,
        ),
        stacked={f"ffn_{part}_exps": f"feed_forward.experts.{{}}.{name}" for part, name in _W},
        experts=True,
        bare=BIASES,
        **_LFM2,
    ),
    "minimax-01": Architecture(
        model="MiniMaxForCausalLM",
        model_type="minimax",
        blocks={
            **NORMS,
            **ATTENTION,
            "attn_qkv": "self_attn.qkv_proj",
            "attn_gate": "self_attn.output_gate",
            "attn_norm_2": "self_attn.norm",
            "ffn_gate_inp": "block_sparse_moe.gate",
        },
        modules=MODEL,
        values=SILU,
        reads=(*experts("num_local_experts"), lightning),
        partial="partial_rotary_factor",
        uneven=True,
        linear="self_attn.out_proj",
        stacked=MIXTRAL,
        experts=True,
    ),
    "kimi-linear": Architecture(
        model="KimiLinearForCausalLM",
        model_type="kimi_linear",
        blocks={
            "attn_norm": "input_layernorm",
            "ffn_norm": "post_attention_layernorm",
            **ATTENTION,
            "attn_q_a": "self_attn.q_a_proj",
            "attn_q_a_norm": "self_attn.q_a_layernorm",
            "attn_q_b": "self_attn.q_b_proj",
            "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
            "attn_kv_a_norm": "self_attn.kv_a_layernorm",
            "attn_kv_b": "self_attn.kv_b_proj",
            **{f"ssm_conv1d_{part}": f"self_attn.{part}_conv1d" for part in "qkv"},
            "ssm_f_a": "self_attn.f_a_proj",
            "ssm_f_b": "self_attn.f_b_proj",
            "ssm_g_a": "self_attn.g_a_proj",
            "ssm_g_b": "self_attn.g_b_proj",
            "ssm_beta": "self_attn.b_proj",
            "ssm_a": "self_attn.A_log",
            "ssm_dt": "self_attn.dt_bias",
            "ssm_norm": "self_attn.o_norm",
            **MLP,
            "ffn_gate_inp": "block_sparse_moe.gate",
            "exp_probs_b": "block_sparse_moe.gate.e_score_correction_bias",
            **{f"ffn_{part}_shexp": f"block_sparse_moe.shared_experts.{part}_proj" for part in ("gate", "up", "down")},
        },
        modules=MODEL,
        reads=(*GROUPED, *experts("num_local_experts"), gated_by("sigmoid"), kimi_linear),
        rotates=False,
        uneven=True,
        head="attention.key_length_mla",
        joined={"attn_v_b": ("attn_k_b", "self_attn.kv_b_proj")},
        stacked={f"ffn_{part}_exps": f"block_sparse_moe.experts.{{}}.{name}" for part, name in _W},
        experts=True,
        decays=frozenset({"ssm_a"}),
        shapes={"ssm_a": nested, **{f"ssm_conv1d_{part}": kernel for part in "qkv"}},
        bare=BIASES | {"ssm_a", "ssm_dt"},
    ),
}
