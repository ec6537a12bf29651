"""Tiny checkpoints of these families."""

from __future__ import annotations

from core_testing.families import TinyFamily

_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_EXAONE3 = {
    "model_type": "exaone",
    "num_layers": 3,
    "num_hidden_layers": None,
    "activation_function": "silu",
    "layer_norm_epsilon": 1e-5,
    "head_dim": 24,
}
_NAMES = {
    "model.embed_tokens.": "transformer.wte.",
    "model.layers.": "transformer.h.",
    "model.norm.": "transformer.ln_f.",
    ".input_layernorm.": ".ln_1.",
    ".post_attention_layernorm.": ".ln_2.",
    ".self_attn.o_proj.": ".attn.attention.out_proj.",
    ".self_attn.": ".attn.attention.",
    ".gate_proj.": ".c_fc_0.",
    ".up_proj.": ".c_fc_1.",
    ".down_proj.": ".c_proj.",
}


def _llama(values):
    """EXAONE 3 computes what Llama does."""
    from transformers import LlamaConfig, LlamaForCausalLM

    keys = {
        "num_layers": "num_hidden_layers",
        "layer_norm_epsilon": "rms_norm_eps",
        "activation_function": "hidden_act",
    }
    config = LlamaConfig(**{keys.get(key, key): value for key, value in values.items() if key != "model_type"})
    config._attn_implementation = "eager"
    return LlamaForCausalLM(config)


def _renamed(name, tensor):
    for ours, theirs in _NAMES.items():
        name = name.replace(ours, theirs)
    return [(name, tensor)]


ROWS = [
    TinyFamily("exaone", "ExaoneForCausalLM", _EXAONE3 | {"rope_scaling": _LLAMA3}, _llama, _renamed),
    TinyFamily(
        "exaone_tied", "ExaoneForCausalLM", _EXAONE3 | {"tie_word_embeddings": True, "head_dim": 20}, _llama, _renamed
    ),
    TinyFamily(
        "exaone4",
        "Exaone4ForCausalLM",
        {"model_type": "exaone4", "sliding_window": None, "layer_types": ["full_attention"] * 3, "head_dim": 24},
    ),
    TinyFamily(
        "exaone4_hybrid",
        "Exaone4ForCausalLM",
        {
            "model_type": "exaone4",
            "sliding_window": 11,
            "sliding_window_pattern": 2,
            "num_hidden_layers": 4,
            "head_dim": 20,
            "tie_word_embeddings": True,
        },
    ),
]

POOLED = [
    TinyFamily(
        "exaone4_scores",
        "Exaone4ForSequenceClassification",
        {"model_type": "exaone4", "sliding_window": 11, "head_dim": 20, "num_labels": 3},
    ),
    TinyFamily("exaone4_states", "Exaone4Model", {"model_type": "exaone4", "sliding_window": 11, "head_dim": 20}),
]
