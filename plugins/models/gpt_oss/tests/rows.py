"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_GPT_OSS = {
    "model_type": "gpt_oss",
    "num_local_experts": 7,
    "num_experts_per_tok": 3,
    "sliding_window": 9,
    "head_dim": 20,
    "rope_scaling": {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 8.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 32,
    },
}

ROWS = [
    TinyFamily("gpt_oss", "GptOssForCausalLM", _GPT_OSS),
    TinyFamily(
        "gpt_oss_kinds",
        "GptOssForCausalLM",
        _GPT_OSS
        | {
            "num_local_experts": 5,
            "num_experts_per_tok": 1,
            "attention_bias": False,
            "swiglu_alpha": 1.3,
            "swiglu_limit": 1.1,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "tie_word_embeddings": True,
            "rope_scaling": {"rope_type": "default", "rope_theta": 3000.0},
        },
    ),
]

POOLED = [
    TinyFamily("gpt_oss_scores", "GptOssForSequenceClassification", _GPT_OSS | {"num_labels": 3, "pad_token_id": 0}),
    TinyFamily("gpt_oss_states", "GptOssModel", _GPT_OSS),
]
