"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

ROWS = [
    TinyFamily("jais2", "Jais2ForCausalLM", {"model_type": "jais2", "eos_token_id": 2}),
    TinyFamily(
        "jais2_variants",
        "Jais2ForCausalLM",
        {
            "model_type": "jais2",
            "eos_token_id": 2,
            "num_key_value_heads": None,
            "attention_bias": False,
            "mlp_bias": False,
            "hidden_act": "gelu",
            "head_dim": 24,
            "tie_word_embeddings": True,
        },
    ),
]
