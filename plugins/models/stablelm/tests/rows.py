"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily


def _of_today(values):
    """Return transformers' model of a configuration of the older spelling."""
    import transformers

    same = {key: value for key, value in values.items() if key not in ("model_type", "architectures")}
    config = transformers.StableLmConfig(
        **same, partial_rotary_factor=values["rope_pct"], layer_norm_eps=values["norm_eps"]
    )
    config._attn_implementation = "eager"
    return transformers.StableLmForCausalLM(config)


# A quarter of 20 dimensions cannot rotate in pairs.
_SIZES = {"hidden_size": 96}
_HEADS_OF_32 = {"hidden_size": 128}

ROWS = [
    TinyFamily("stablelm", "StableLmForCausalLM", {"model_type": "stablelm", **_SIZES}, native=_HEADS_OF_32),
    TinyFamily(
        "stablelm_parallel",
        "StableLmForCausalLM",
        {
            "model_type": "stablelm",
            "use_parallel_residual": True,
            "qk_layernorm": True,
            "use_qkv_bias": True,
            "tie_word_embeddings": True,
            "partial_rotary_factor": 0.5,
            "layer_norm_eps": 1e-3,
        },
        native=_HEADS_OF_32,
    ),
    TinyFamily(
        "stablelm_epoch",
        "StableLMEpochForCausalLM",
        {"model_type": "stablelm_epoch", "rope_pct": 0.5, "norm_eps": 1e-3, "rope_theta": 1000.0},
        reference=_of_today,
        native=_HEADS_OF_32,
    ),
]

POOLED = [
    TinyFamily(
        "stablelm_scored", "StableLmForSequenceClassification", {"model_type": "stablelm", "pad_token_id": 0, **_SIZES}
    ),
]
