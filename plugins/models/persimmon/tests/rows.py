"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_SIZES = {"model_type": "persimmon", "num_key_value_heads": None}

ROWS = [
    TinyFamily("persimmon", "PersimmonForCausalLM", {**_SIZES, "rope_theta": 25000.0}, native={"hidden_size": 64}),
    TinyFamily(
        "persimmon_plain",
        "PersimmonForCausalLM",
        {
            **_SIZES,
            "qk_layernorm": False,
            "partial_rotary_factor": 0.3,
            "rope_scaling": {"rope_type": "linear", "factor": 2.0},
            "hidden_act": "gelu",
            "tie_word_embeddings": True,
        },
        native={"hidden_size": 64},
    ),
]
