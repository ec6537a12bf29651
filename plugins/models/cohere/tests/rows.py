"""Tiny checkpoints of these families."""

from __future__ import annotations

from core_testing.families import TinyFamily

_HEADS_OF_32 = {"hidden_size": 128}

ROWS = [
    TinyFamily("cohere", "CohereForCausalLM", {"model_type": "cohere"}, native=_HEADS_OF_32),
    TinyFamily(
        "cohere_norms",
        "CohereForCausalLM",
        {
            "model_type": "cohere",
            "use_qk_norm": True,
            "attention_bias": True,
            "tie_word_embeddings": False,
            "logit_scale": 0.5,
            "layer_norm_eps": 1e-3,
        },
        native=_HEADS_OF_32,
    ),
    TinyFamily(
        "cohere2",
        "Cohere2ForCausalLM",
        {"model_type": "cohere2", "num_hidden_layers": 5, "sliding_window": 13, "rope_theta": 50000.0},
        native=_HEADS_OF_32,
    ),
    TinyFamily(
        "cohere2_pattern",
        "Cohere2ForCausalLM",
        {"model_type": "cohere2", "sliding_window": 24, "sliding_window_pattern": 2, "attention_bias": True},
        native=_HEADS_OF_32,
    ),
    TinyFamily(
        "cohere2_still", "Cohere2ForCausalLM", {"model_type": "cohere2", "sliding_window": None}, native=_HEADS_OF_32
    ),
]
