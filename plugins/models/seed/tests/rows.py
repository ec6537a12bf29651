"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_TINY = {"model_type": "seed_oss", "head_dim": 24}

ROWS = [
    TinyFamily("seed", "SeedOssForCausalLM", _TINY),
    TinyFamily(
        "seed_variants",
        "SeedOssForCausalLM",
        {
            "model_type": "seed_oss",
            "head_dim": 20,
            "attention_bias": False,
            "attention_out_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
        },
    ),
]

POOLED = [
    TinyFamily("seed_scores", "SeedOssForSequenceClassification", _TINY | {"num_labels": 3}),
    TinyFamily("seed_states", "SeedOssModel", _TINY),
]
