"""Tiny checkpoints of this family."""

from __future__ import annotations

from core.testing.families import TinyFamily

_MINIMAX = {
    "model_type": "minimax_m2",
    "num_local_experts": 7,
    "num_experts_per_tok": 3,
    "head_dim": 24,
}

ROWS = [
    TinyFamily("minimax_m2", "MiniMaxM2ForCausalLM", _MINIMAX | {"rotary_dim": 12}),
    TinyFamily(
        "minimax_m2_whole",
        "MiniMaxM2ForCausalLM",
        _MINIMAX | {"num_local_experts": 5, "num_experts_per_tok": 1, "tie_word_embeddings": True, "rope_theta": 900.0},
    ),
]
