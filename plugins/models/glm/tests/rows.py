"""Tiny checkpoints of these families."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from core_testing.families import TinyFamily

_spec = spec_from_file_location("reference_chatglm", Path(__file__).with_name("reference_chatglm.py"))
_chatglm = module_from_spec(_spec)
_spec.loader.exec_module(_chatglm)

_CHATGLM = {
    "model_type": "chatglm",
    "padded_vocab_size": 377,
    "num_layers": 3,
    "ffn_hidden_size": 88,
    "kv_channels": 24,
    "seq_length": 256,
    "layernorm_epsilon": 1e-5,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "add_qkv_bias": True,
    "rmsnorm": True,
    "post_layer_norm": True,
    "original_rope": True,
    "vocab_size": None,
    "num_hidden_layers": None,
    "intermediate_size": None,
    "num_key_value_heads": None,
    "max_position_embeddings": None,
}
_OTHERS = {
    "multi_query_attention": False,
    "multi_query_group_num": 1,
    "add_bias_linear": True,
    "rmsnorm": False,
    "post_layer_norm": False,
    "original_rope": False,
}


def _with_frequencies(name, tensor):
    """Old checkpoints store the rotary frequencies, too."""
    extra = [("transformer.rotary_pos_emb.inv_freq", tensor[:6, 0])] if name.endswith("embeddings.weight") else []
    return [(name, tensor), *extra]


def _chatglm_row(name, architecture="ChatGLMModel", spread=0.3, **changes):
    config, native = _CHATGLM | changes, {"kv_channels": 32}
    return TinyFamily(name, architecture, config, _chatglm.ChatGLM, _with_frequencies, native, spread)


_GLM = {"model_type": "glm", "eos_token_id": 2, "head_dim": 24}

_MOE = {
    "model_type": "glm4_moe",
    "n_routed_experts": 9,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 36,
    "head_dim": 24,
}

ROWS = [
    TinyFamily("glm", "GlmForCausalLM", _GLM),
    TinyFamily(
        "glm_variants",
        "GlmForCausalLM",
        _GLM | {"head_dim": 32, "partial_rotary_factor": 0.25, "attention_bias": False, "tie_word_embeddings": True},
    ),
    TinyFamily("glm4", "Glm4ForCausalLM", _GLM | {"model_type": "glm4", "num_key_value_heads": 1}),
    _chatglm_row("chatglm"),
    _chatglm_row("chatglm_long", rope_ratio=500, seq_length=512),
    _chatglm_row("chatglm_variants", "ChatGLMForConditionalGeneration", spread=0.1, **_OTHERS),
    TinyFamily("glm4_moe", "Glm4MoeForCausalLM", _MOE | {"n_group": 3, "topk_group": 2, "use_qk_norm": True}),
    TinyFamily(
        "glm4_moe_plain",
        "Glm4MoeForCausalLM",
        _MOE
        | {
            "first_k_dense_replace": 2,
            "n_shared_experts": 3,
            "num_experts_per_tok": 1,
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.5,
            "attention_bias": True,
            "head_dim": 28,
        },
    ),
]

POOLED = [
    TinyFamily("glm_scores", "GlmForSequenceClassification", _GLM | {"num_labels": 3}),
    TinyFamily("glm4_states", "Glm4Model", _GLM | {"model_type": "glm4"}),
]
