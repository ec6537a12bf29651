"""Tiny checkpoints of this family."""

from __future__ import annotations

import math

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, renamed, sizes_of

_FACTORS = {"scale_emb": 6, "scale_depth": 1.4, "dim_model_base": 24}


def reference(config):
    """Return the published formula."""
    extra = {}
    if config.get("rope_scaling"):
        # The context is 256, twice the original one; prompts are shorter, and the engine starts with the short factors.
        stretch = math.sqrt(1 + math.log(2) / math.log(128))
        extra = {"divisors": config["rope_scaling"]["short_factor"], "stretch": stretch}
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    return ReferenceDecoder(
        Reference(
            **sizes_of(config),
            **extra,
            embed_scale=config.get("scale_emb", 1),
            layer_scale=config.get("scale_depth", 1) / layers**0.5,
            logit_scale=config.get("dim_model_base", 1) / hidden,
            tied=config.get("tie_word_embeddings", True),
        )
    )


_LONG = {
    "rope_type": "longrope",
    "original_max_position_embeddings": 128,
    "short_factor": [1.0 + 0.1 * pair for pair in range(16)],
    "long_factor": [2.0 + 0.2 * pair for pair in range(16)],
}

_LATENT = {
    "kv_lora_rank": 24,
    "q_lora_rank": 28,
    "qk_nope_head_dim": 14,
    "qk_rope_head_dim": 12,
    "num_key_value_heads": 4,
}
_SHARED = {"native": {}}

ROWS = [
    TinyFamily("minicpm3", "MiniCPM3ForCausalLM", {"model_type": "minicpm3", **_LATENT, **_FACTORS}, **_SHARED),
    TinyFamily(
        "minicpm3_long",
        "MiniCPM3ForCausalLM",
        {
            "model_type": "minicpm3",
            **_LATENT,
            **_FACTORS,
            "v_head_dim": 10,
            "tie_word_embeddings": False,
            "attention_bias": True,
            "rope_scaling": {
                "rope_type": "longrope",
                "factor": 2.0,
                "original_max_position_embeddings": 128,
                "short_factor": [1.0 + 0.1 * pair for pair in range(6)],
                "long_factor": [2.0 + 0.2 * pair for pair in range(6)],
            },
        },
        **_SHARED,
    ),
    TinyFamily(
        "minicpm",
        "MiniCPMForCausalLM",
        {"model_type": "minicpm", "num_key_value_heads": 4, **_FACTORS},
        reference=reference,
        save=renamed(),
    ),
    TinyFamily(
        "minicpm4",
        "MiniCPMForCausalLM",
        {
            "model_type": "minicpm",
            **_FACTORS,
            "head_dim": 32,
            "tie_word_embeddings": False,
            "rope_scaling": _LONG,
            "rms_norm_eps": 1e-5,
            "rope_theta": 5000.0,
        },
        reference=reference,
        save=renamed(),
    ),
]
