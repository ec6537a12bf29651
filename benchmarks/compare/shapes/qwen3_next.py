"""Four layers of Qwen3-Next-80B-A3B, with a quarter of its experts."""

from __future__ import annotations

from benchmarks.compare.shapes.base import CACHED, Shape, Sizes, Span, gguf_experts, gguf_mlp, mlp, norms

HIDDEN = 2048
_NEXT = {"experts": 128, "top_k": 10, "size": 512, "heads": 16, "kv_heads": 2, "head_dim": 256}
"""A quarter of its 512 experts: a token reads ten of them and the router's row of each, whatever their number."""
_STATE, _KEY_HEADS, _VALUE_HEADS, _CONV = 128, 16, 32, 4
_KEYS, _VALUES = _KEY_HEADS * _STATE, _VALUE_HEADS * _STATE


def _next_layer(layer: int) -> Sizes:
    heads, kv, size = _NEXT["heads"], _NEXT["kv_heads"], _NEXT["head_dim"]
    if _attends(layer):
        yield "self_attn.q_proj.weight", (2 * heads * size, HIDDEN)
        for name in ("k", "v"):
            yield f"self_attn.{name}_proj.weight", (kv * size, HIDDEN)
        yield "self_attn.o_proj.weight", (HIDDEN, heads * size)
        yield "self_attn.q_norm.weight", (size,)
        yield "self_attn.k_norm.weight", (size,)
    else:
        yield "linear_attn.in_proj_qkvz.weight", (2 * (_KEYS + _VALUES), HIDDEN)
        yield "linear_attn.in_proj_ba.weight", (2 * _VALUE_HEADS, HIDDEN)
        yield "linear_attn.conv1d.weight", (2 * _KEYS + _VALUES, 1, _CONV)
        yield "linear_attn.dt_bias", (_VALUE_HEADS,)
        yield "linear_attn.A_log", (_VALUE_HEADS,)
        yield "linear_attn.norm.weight", (_STATE,)
        yield "linear_attn.out_proj.weight", (HIDDEN, _VALUES)
    for name, width in norms(HIDDEN):
        yield f"{name}.weight", (width,)
    yield "mlp.gate.weight", (_NEXT["experts"], HIDDEN)
    yield "mlp.shared_expert_gate.weight", (1, HIDDEN)
    yield from mlp("mlp.shared_expert", _NEXT["size"], HIDDEN)
    for expert in range(_NEXT["experts"]):
        yield from mlp(f"mlp.experts.{expert}", _NEXT["size"], HIDDEN)


def _next_gguf(layer: int) -> Sizes:
    heads, kv, size = _NEXT["heads"], _NEXT["kv_heads"], _NEXT["head_dim"]
    if _attends(layer):
        yield "attn_q.weight", (2 * heads * size, HIDDEN)
        for name in ("k", "v"):
            yield f"attn_{name}.weight", (kv * size, HIDDEN)
        yield "attn_output.weight", (HIDDEN, heads * size)
        yield "attn_q_norm.weight", (size,)
        yield "attn_k_norm.weight", (size,)
    else:
        yield "attn_qkv.weight", (2 * _KEYS + _VALUES, HIDDEN)
        yield "attn_gate.weight", (_VALUES, HIDDEN)
        yield "ssm_ba.weight", (2 * _VALUE_HEADS, HIDDEN)
        yield "ssm_conv1d.weight", (2 * _KEYS + _VALUES, _CONV)
        yield "ssm_dt.bias", (_VALUE_HEADS,)
        yield "ssm_a", (_VALUE_HEADS,)
        yield "ssm_norm.weight", (_STATE,)
        yield "ssm_out.weight", (HIDDEN, _VALUES)
    for name in ("attn_norm", "post_attention_norm"):
        yield f"{name}.weight", (HIDDEN,)
    yield "ffn_gate_inp.weight", (_NEXT["experts"], HIDDEN)
    yield "ffn_gate_inp_shexp.weight", (HIDDEN,)
    yield from gguf_mlp("_shexp", _NEXT["size"], HIDDEN)
    yield from gguf_experts(_NEXT["experts"], _NEXT["size"], HIDDEN)


def _attends(layer: int) -> bool:
    return layer % 4 == 3


QWEN3_NEXT = Shape(
    title="four layers of Qwen3-Next-80B-A3B: three of the delta rule, one attends; 128 of its experts",
    config={
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "num_attention_heads": _NEXT["heads"],
        "num_key_value_heads": _NEXT["kv_heads"],
        "head_dim": _NEXT["head_dim"],
        "partial_rotary_factor": 0.25,
        "full_attention_interval": 4,
        "linear_num_key_heads": _KEY_HEADS,
        "linear_num_value_heads": _VALUE_HEADS,
        "linear_key_head_dim": _STATE,
        "linear_value_head_dim": _STATE,
        "linear_conv_kernel_dim": _CONV,
        "num_experts": _NEXT["experts"],
        "num_experts_per_tok": _NEXT["top_k"],
        "moe_intermediate_size": _NEXT["size"],
        "shared_expert_intermediate_size": _NEXT["size"],
        "intermediate_size": 5120,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "rope_theta": 1e7,
        "attention_bias": False,
    },
    layer=_next_layer,
    arch="qwen3next",
    metadata={
        "attention.head_count": _NEXT["heads"],
        "attention.head_count_kv": _NEXT["kv_heads"],
        "attention.key_length": _NEXT["head_dim"],
        "attention.value_length": _NEXT["head_dim"],
        "rope.dimension_count": _NEXT["head_dim"] // 4,
        "rope.freq_base": 1e7,
        "full_attention_interval": 4,
        "ssm.conv_kernel": _CONV,
        "ssm.inner_size": _VALUES,
        "ssm.state_size": _STATE,
        "ssm.time_step_rank": _VALUE_HEADS,
        "ssm.group_count": _KEY_HEADS,
        "feed_forward_length": 5120,
        "expert_count": _NEXT["experts"],
        "expert_used_count": _NEXT["top_k"],
        "expert_feed_forward_length": _NEXT["size"],
        "expert_shared_feed_forward_length": _NEXT["size"],
    },
    gguf=_next_gguf,
    spans=(Span(2 * _NEXT["kv_heads"] * _NEXT["head_dim"], 2 * _NEXT["heads"] * _NEXT["head_dim"]),),
    # Of three layers: the delta rule's in float32, and the last tokens of the convolution.
    states=3 * (4 * _VALUES * _STATE + CACHED * (_CONV - 1) * (2 * _KEYS + _VALUES)),
    active=_NEXT["top_k"] / _NEXT["experts"],
    direct=("BF16", "Q4_0"),
)
