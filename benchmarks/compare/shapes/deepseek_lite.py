"""Four layers of DeepSeek-V2-Lite."""

from __future__ import annotations

from benchmarks.compare.shapes.base import Shape, Sizes, Span, gguf_experts, gguf_mlp, mlp, norms

HIDDEN = 2048
_LITE = {"experts": 64, "top_k": 6, "size": 1408, "dense": 10_944, "heads": 16}
_LATENT, _ROPE, _KEY, _VALUE = 512, 64, 128, 128
_QUERY = 1536
"""Latent of the queries. Lite has none, but llama.cpp knows Lite by its 27 layers, and asks others for one."""


def _lite_layer(layer: int) -> Sizes:
    heads = _LITE["heads"]
    yield "self_attn.q_a_proj.weight", (_QUERY, HIDDEN)
    yield "self_attn.q_b_proj.weight", (heads * (_KEY + _ROPE), _QUERY)
    yield "self_attn.kv_a_proj_with_mqa.weight", (_LATENT + _ROPE, HIDDEN)
    yield "self_attn.kv_b_proj.weight", (heads * (_KEY + _VALUE), _LATENT)
    yield "self_attn.o_proj.weight", (HIDDEN, heads * _VALUE)
    sized = (("self_attn.q_a_layernorm", _QUERY), ("self_attn.kv_a_layernorm", _LATENT), *norms(HIDDEN))
    for name, size in sized:
        yield f"{name}.weight", (size,)
    if layer == 0:
        yield from mlp("mlp", _LITE["dense"], HIDDEN)
        return
    yield "mlp.gate.weight", (_LITE["experts"], HIDDEN)
    yield from mlp("mlp.shared_experts", 2 * _LITE["size"], HIDDEN)
    for expert in range(_LITE["experts"]):
        yield from mlp(f"mlp.experts.{expert}", _LITE["size"], HIDDEN)


def _lite_gguf(layer: int) -> Sizes:
    heads = _LITE["heads"]
    yield "attn_q_a.weight", (_QUERY, HIDDEN)
    yield "attn_q_b.weight", (heads * (_KEY + _ROPE), _QUERY)
    yield "attn_kv_a_mqa.weight", (_LATENT + _ROPE, HIDDEN)
    yield "attn_k_b.weight", (heads, _LATENT, _KEY)
    yield "attn_v_b.weight", (heads, _VALUE, _LATENT)
    yield "attn_output.weight", (HIDDEN, heads * _VALUE)
    sized = (("attn_q_a_norm", _QUERY), ("attn_kv_a_norm", _LATENT), ("attn_norm", HIDDEN), ("ffn_norm", HIDDEN))
    for name, size in sized:
        yield f"{name}.weight", (size,)
    if layer == 0:
        yield from gguf_mlp("", _LITE["dense"], HIDDEN)
        return
    yield "ffn_gate_inp.weight", (_LITE["experts"], HIDDEN)
    yield from gguf_mlp("_shexp", 2 * _LITE["size"], HIDDEN)
    yield from gguf_experts(_LITE["experts"], _LITE["size"], HIDDEN)


DEEPSEEK_LITE = Shape(
    title="four layers of DeepSeek-V2-Lite, 64 experts, 6 of a token, two shared",
    config={
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "num_attention_heads": _LITE["heads"],
        "num_key_value_heads": _LITE["heads"],
        "q_lora_rank": _QUERY,
        "kv_lora_rank": _LATENT,
        "qk_nope_head_dim": _KEY,
        "qk_rope_head_dim": _ROPE,
        "v_head_dim": _VALUE,
        "n_routed_experts": _LITE["experts"],
        "n_shared_experts": 2,
        "num_experts_per_tok": _LITE["top_k"],
        "moe_intermediate_size": _LITE["size"],
        "intermediate_size": _LITE["dense"],
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "greedy",
        "scoring_func": "softmax",
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
        "rope_theta": 10_000.0,
        "attention_bias": False,
    },
    layer=_lite_layer,
    arch="deepseek2",
    metadata={
        "attention.head_count": _LITE["heads"],
        "attention.head_count_kv": 1,
        "attention.key_length": _LATENT + _ROPE,
        "attention.value_length": _LATENT,
        "attention.key_length_mla": _KEY + _ROPE,
        "attention.value_length_mla": _VALUE,
        "attention.q_lora_rank": _QUERY,
        "attention.kv_lora_rank": _LATENT,
        "rope.dimension_count": _ROPE,
        "rope.freq_base": 10_000.0,
        "feed_forward_length": _LITE["dense"],
        "leading_dense_block_count": 1,
        "expert_count": _LITE["experts"],
        "expert_shared_count": 2,
        "expert_used_count": _LITE["top_k"],
        "expert_feed_forward_length": _LITE["size"],
        "expert_weights_scale": 1.0,
        "expert_gating_func": 1,  # softmax
    },
    gguf=_lite_gguf,
    spans=(Span(_LATENT + _ROPE, _LITE["heads"] * (_KEY + _ROPE + _VALUE)),) * 4,
    active=_LITE["top_k"] / _LITE["experts"],
    direct=("BF16", "Q4_0"),
)
