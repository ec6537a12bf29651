"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

ROWS = [
    TinyFamily("mixtral", "MixtralForCausalLM", {"model_type": "mixtral", "num_local_experts": 5}),
    TinyFamily(
        "mixtral_window",
        "MixtralForCausalLM",
        {
            "model_type": "mixtral",
            "num_local_experts": 4,
            "num_experts_per_tok": 3,
            "sliding_window": 8,
            "head_dim": 24,
        },
    ),
]
