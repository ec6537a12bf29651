"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily


def _older(values):
    """The reference of the architecture's other spelling."""
    from transformers import Ernie4_5Config, Ernie4_5ForCausalLM

    model = Ernie4_5ForCausalLM(Ernie4_5Config(**values))
    model.config._attn_implementation = "eager"
    return model


_MOE = {
    "model_type": "ernie4_5_moe",
    "moe_num_experts": 7,
    "moe_k": 3,
    "moe_intermediate_size": 36,
    "moe_num_shared_experts": 2,
}

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
    TinyFamily("ernie_moe", "Ernie4_5_MoeForCausalLM", _MOE | {"moe_layer_end_index": 2, "num_hidden_layers": 4}),
    TinyFamily(
        "ernie_moe_bias",
        "Ernie4_5_MoeForCausalLM",
        _MOE
        | {
            "use_bias": True,
            "moe_layer_start_index": 0,
            "moe_layer_interval": 2,
            "moe_num_shared_experts": 0,
            "moe_k": 1,
            "num_hidden_layers": 4,
            "tie_word_embeddings": False,
            "head_dim": 24,
        },
    ),
]
