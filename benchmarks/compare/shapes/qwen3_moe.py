"""Four layers of Qwen3-30B-A3B."""

from __future__ import annotations

from benchmarks.compare.shapes.base import Shape, Sizes, Span, gguf_experts, mlp, norms

HIDDEN = 2048
_QWEN = {"experts": 128, "top_k": 8, "size": 768, "heads": 32, "kv_heads": 4, "head_dim": 128}


def _qwen_layer(layer: int) -> Sizes:
    q, kv, head = _QWEN["heads"] * _QWEN["head_dim"], _QWEN["kv_heads"] * _QWEN["head_dim"], _QWEN["head_dim"]
    for name, rows in (("q", q), ("k", kv), ("v", kv)):
        yield f"self_attn.{name}_proj.weight", (rows, HIDDEN)
    yield "self_attn.o_proj.weight", (HIDDEN, q)
    for name, size in (("self_attn.q_norm", head), ("self_attn.k_norm", head), *norms(HIDDEN)):
        yield f"{name}.weight", (size,)
    yield "mlp.gate.weight", (_QWEN["experts"], HIDDEN)
    for expert in range(_QWEN["experts"]):
        yield from mlp(f"mlp.experts.{expert}", _QWEN["size"], HIDDEN)


def _qwen_gguf(layer: int) -> Sizes:
    q, kv, head = _QWEN["heads"] * _QWEN["head_dim"], _QWEN["kv_heads"] * _QWEN["head_dim"], _QWEN["head_dim"]
    for name, rows in (("q", q), ("k", kv), ("v", kv)):
        yield f"attn_{name}.weight", (rows, HIDDEN)
    yield "attn_output.weight", (HIDDEN, q)
    for name, size in (("attn_q_norm", head), ("attn_k_norm", head), ("attn_norm", HIDDEN), ("ffn_norm", HIDDEN)):
        yield f"{name}.weight", (size,)
    yield "ffn_gate_inp.weight", (_QWEN["experts"], HIDDEN)
    yield from gguf_experts(_QWEN["experts"], _QWEN["size"], HIDDEN)


QWEN3_MOE = Shape(
    title="four layers of Qwen3-30B-A3B: 128 experts, 8 of a token",
    config={
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_attention_heads": _QWEN["heads"],
        "num_key_value_heads": _QWEN["kv_heads"],
        "head_dim": _QWEN["head_dim"],
        "num_experts": _QWEN["experts"],
        "num_experts_per_tok": _QWEN["top_k"],
        "moe_intermediate_size": _QWEN["size"],
        "intermediate_size": 6144,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "rope_theta": 1e6,
        "attention_bias": False,
    },
    layer=_qwen_layer,
    arch="qwen3moe",
    metadata={
        "attention.head_count": _QWEN["heads"],
        "attention.head_count_kv": _QWEN["kv_heads"],
        "attention.key_length": _QWEN["head_dim"],
        "attention.value_length": _QWEN["head_dim"],
        "feed_forward_length": 6144,
        "expert_count": _QWEN["experts"],
        "expert_used_count": _QWEN["top_k"],
        "expert_feed_forward_length": _QWEN["size"],
        "rope.freq_base": 1e6,
    },
    gguf=_qwen_gguf,
    spans=(Span(2 * _QWEN["kv_heads"] * _QWEN["head_dim"], 2 * _QWEN["heads"] * _QWEN["head_dim"]),) * 4,
    active=_QWEN["top_k"] / _QWEN["experts"],
    direct=("BF16", "Q4_0"),
)
