"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_KINDS = ["conv", "full_attention", "conv", "conv"]

ROWS = [
    TinyFamily(
        "lfm2",
        "Lfm2ForCausalLM",
        {
            "model_type": "lfm2",
            "num_hidden_layers": 4,
            "layer_types": _KINDS,
            "norm_eps": 1e-5,
            "block_multiple_of": 8,
        },
    ),
    TinyFamily(
        "lfm2_biased",
        "Lfm2ForCausalLM",
        {
            "model_type": "lfm2",
            "num_hidden_layers": 4,
            "layer_types": _KINDS,
            "conv_bias": True,
            "conv_L_cache": 5,
            "block_auto_adjust_ff_dim": False,
            "tie_word_embeddings": False,
        },
    ),
    TinyFamily(
        "lfm2_moe",
        "Lfm2MoeForCausalLM",
        {
            "model_type": "lfm2_moe",
            "num_hidden_layers": 4,
            "layer_types": _KINDS,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "num_dense_layers": 1,
        },
    ),
]
