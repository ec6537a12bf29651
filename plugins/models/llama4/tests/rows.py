"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_LLAMA4 = {
    "model_type": "llama4_text",
    "num_hidden_layers": 4,
    "num_local_experts": 5,
    "head_dim": 24,
    "intermediate_size": 36,
    "intermediate_size_mlp": 88,
    "attention_chunk_size": 16,
    "floor_scale": 7,
    "attn_scale": 0.4,
}

_STEP = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 1.0,
    "original_max_position_embeddings": 64,
}

_NATIVE = {"head_dim": 32, "layer_types": ["full_attention"] * 4}
"""The native attention of a CPU has no chunks."""

ROWS = [
    TinyFamily("llama4", "Llama4ForCausalLM", _LLAMA4, native=_NATIVE),
    TinyFamily(
        "llama4_mixed",
        "Llama4ForCausalLM",
        _LLAMA4
        | {
            "interleave_moe_layer_step": 2,
            "no_rope_layers": [1, 0, 1, 1],
            "use_qk_norm": False,
            "attn_temperature_tuning": False,
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
        native=_NATIVE,
    ),
    TinyFamily(
        "llama4_listed",
        "Llama4ForCausalLM",
        _LLAMA4
        | {
            "moe_layers": [0, 3],
            "no_rope_layer_interval": 2,
            "num_experts_per_tok": 2,
            "rope_scaling": _STEP,
            "layer_types": ["chunked_attention", "full_attention", "full_attention", "chunked_attention"],
        },
        native=_NATIVE,
    ),
]
