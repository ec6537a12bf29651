"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_SIZES = {"model_type": "opt", "intermediate_size": None, "num_key_value_heads": None, "ffn_dim": 88}
_WIDE = {"hidden_size": 64}


def older(name, tensor):
    """Names without `model.`, as the first checkpoints have them."""
    return [] if name.startswith("lm_head") else [(name.removeprefix("model."), tensor)]


ROWS = [
    TinyFamily("opt", "OPTForCausalLM", _SIZES, native=_WIDE),
    TinyFamily("opt_older", "OPTForCausalLM", {**_SIZES, "activation_function": "gelu"}, save=older, native=_WIDE),
    TinyFamily(
        "opt_behind",
        "OPTForCausalLM",
        {**_SIZES, "do_layer_norm_before": False, "word_embed_proj_dim": 48},
        native=_WIDE,
    ),
    TinyFamily(
        "opt_plain",
        "OPTForCausalLM",
        {
            **_SIZES,
            "enable_bias": False,
            "layer_norm_elementwise_affine": False,
            "_remove_final_layer_norm": True,
            "tie_word_embeddings": False,
        },
        native=_WIDE,
        spread=0.12,
    ),
]
