"""Tiny checkpoints of this family."""

from __future__ import annotations

from core.testing.families import TinyFamily


def _older(values):
    """The reference of the architecture's other spelling."""
    from transformers import Ernie4_5Config, Ernie4_5ForCausalLM

    model = Ernie4_5ForCausalLM(Ernie4_5Config(**values))
    model.config._attn_implementation = "eager"
    return model


ROWS = [
    TinyFamily("ernie", "Ernie4_5ForCausalLM", {"model_type": "ernie4_5", "head_dim": 24}),
    TinyFamily(
        "ernie_older",
        "Ernie4_5_ForCausalLM",
        {
            "model_type": "ernie4_5",
            "use_bias": True,
            "tie_word_embeddings": False,
            "head_dim": 32,
            "compression_ratio": 1.0,
            "rope_theta": 10000.0,
        },
        reference=_older,
    ),
]
