"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_FACTORS = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.3,
    "residual_multiplier": 0.6,
    "logits_scaling": 0.25,
}

ROWS = [
    TinyFamily("hyperclovax", "HyperCLOVAXForCausalLM", {"model_type": "hyperclovax", **_FACTORS}),
    TinyFamily(
        "hyperclovax_plain",
        "HyperCLOVAXForCausalLM",
        {
            "model_type": "hyperclovax",
            "use_post_norm": False,
            "attention_bias": True,
            "mlp_bias": True,
            "head_dim": 24,
            "tie_word_embeddings": True,
        },
    ),
]
