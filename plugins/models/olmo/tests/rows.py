"""Tiny checkpoints of these families."""

from __future__ import annotations

from core_testing.families import TinyFamily

_HEADS_OF_32 = {"hidden_size": 128}
_YARN = {
    "rope_type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "attention_factor": 1.2,
}

ROWS = [
    TinyFamily("olmo", "OlmoForCausalLM", {"model_type": "olmo", "clip_qkv": 0.9}, native=_HEADS_OF_32),
    TinyFamily(
        "olmo_bias",
        "OlmoForCausalLM",
        {"model_type": "olmo", "attention_bias": True, "tie_word_embeddings": True, "num_key_value_heads": None},
        native=_HEADS_OF_32,
    ),
    TinyFamily("olmo2", "Olmo2ForCausalLM", {"model_type": "olmo2", "rms_norm_eps": 1e-6}, native=_HEADS_OF_32),
    TinyFamily(
        "olmo2_bias",
        "Olmo2ForCausalLM",
        {
            "model_type": "olmo2",
            "attention_bias": True,
            "tie_word_embeddings": True,
            "num_key_value_heads": None,
            "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        },
        native=_HEADS_OF_32,
    ),
    TinyFamily(
        "olmo3",
        "Olmo3ForCausalLM",
        {"model_type": "olmo3", "num_hidden_layers": 5, "sliding_window": 13, "rope_scaling": _YARN},
        native=_HEADS_OF_32,
    ),
    TinyFamily(
        "olmo3_kinds",
        "Olmo3ForCausalLM",
        {
            "model_type": "olmo3",
            "sliding_window": 24,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 3000.0},
                "full_attention": _YARN | {"rope_theta": 70000.0},
            },
        },
        native=_HEADS_OF_32,
    ),
    TinyFamily(
        "olmoe",
        "OlmoeForCausalLM",
        {"model_type": "olmoe", "num_experts": 7, "num_experts_per_tok": 3},
        native=_HEADS_OF_32,
    ),
    TinyFamily(
        "olmoe_clipped",
        "OlmoeForCausalLM",
        {
            "model_type": "olmoe",
            "num_experts": 6,
            "num_experts_per_tok": 1,
            "clip_qkv": 0.9,
            "norm_topk_prob": True,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "num_key_value_heads": None,
        },
        native=_HEADS_OF_32,
    ),
    TinyFamily(
        "flex_olmo",
        "FlexOlmoForCausalLM",
        {"model_type": "flex_olmo", "num_experts": 5, "num_experts_per_tok": 4, "norm_topk_prob": True},
        native=_HEADS_OF_32,
    ),
    TinyFamily(
        "flex_olmo_bias",
        "FlexOlmoForCausalLM",
        {"model_type": "flex_olmo", "attention_bias": True, "rope_theta": 3000.0},
        native=_HEADS_OF_32,
    ),
]

POOLED = [
    TinyFamily("olmo_scored", "OlmoForSequenceClassification", {"model_type": "olmo", "pad_token_id": 0}),
    TinyFamily("olmo2_states", "Olmo2Model", {"model_type": "olmo2"}),
    TinyFamily("olmo3_scored", "Olmo3ForSequenceClassification", {"model_type": "olmo3", "pad_token_id": 0}),
]
