"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_SIZES = {"model_type": "falcon", "intermediate_size": None, "num_key_value_heads": None}
_WIDE = {"hidden_size": 64}
_WITHOUT = dict.fromkeys(("intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"), None)


def renamed(values):
    """transformers' model of a configuration with the keys of the first checkpoints."""
    from transformers import FalconConfig, FalconForCausalLM

    newer = {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_head_kv": "num_kv_heads"}
    given = {newer.get(key, key): value for key, value in values.items() if key != "model_type"}
    config = FalconConfig(**given, new_decoder_architecture="n_head_kv" in values)
    config._attn_implementation = "eager"
    return FalconForCausalLM(config)


def with_alibi(values):
    """transformers' model as it is used by default: its eager form adds ALiBi twice."""
    from transformers import FalconConfig, FalconForCausalLM

    config = FalconConfig(**values)
    config._attn_implementation = "sdpa"
    return FalconForCausalLM(config)


def stored(name, tensor):
    return [] if name.startswith("lm_head") else [(name, tensor)]


ROWS = [
    TinyFamily("falcon", "FalconForCausalLM", _SIZES, native=_WIDE),
    TinyFamily(
        "falcon_grouped",
        "FalconForCausalLM",
        {**_SIZES, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True, "tie_word_embeddings": False},
        native=_WIDE,
    ),
    TinyFamily(
        "falcon_one_norm",
        "FalconForCausalLM",
        {
            **_SIZES,
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
            "num_ln_in_parallel_attn": 1,
            "ffn_hidden_size": 88,
            "rope_theta": 500042.0,
        },
        native=_WIDE,
    ),
    TinyFamily(
        "falcon_serial",
        "FalconForCausalLM",
        {**_SIZES, "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
        reference=with_alibi,
        save=stored,
        native=_WIDE,
    ),
    TinyFamily(
        "falcon_first",
        "RWForCausalLM",
        {
            **_WITHOUT,
            "model_type": "RefinedWebModel",
            "n_layer": 3,
            "n_head": 4,
            "multi_query": True,
            "parallel_attn": True,
        },
        reference=renamed,
        save=stored,
        native=_WIDE,
    ),
    TinyFamily(
        "falcon_first_grouped",
        "RWForCausalLM",
        {**_WITHOUT, "model_type": "RefinedWeb", "n_layer": 3, "n_head": 4, "n_head_kv": 2},
        reference=renamed,
        save=stored,
        native=_WIDE,
    ),
    TinyFamily(
        "falcon_serial_rotary",
        "FalconForCausalLM",
        {**_SIZES, "multi_query": False, "parallel_attn": False, "bias": True, "activation": "relu"},
        native=_WIDE,
    ),
]
