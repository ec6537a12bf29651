"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_WITHOUT = dict.fromkeys(
    ("intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "max_position_embeddings")
)
_SIZES = {"model_type": "bloom", **_WITHOUT, "n_layer": 3, "n_head": 4, "seq_length": 256}


def bare(name, tensor):
    """Names as the checkpoints of bigscience have them."""
    return [] if name.startswith("lm_head") else [(name.removeprefix("transformer."), tensor)]


ROWS = [
    TinyFamily("bloom", "BloomForCausalLM", _SIZES, native={"hidden_size": 64}),
    TinyFamily(
        "bloom_bare",
        "BloomForCausalLM",
        {**_SIZES, "hidden_size": None, "n_embed": 84, "n_head": None, "num_attention_heads": 7},
        save=bare,
        native={"n_embed": 80, "num_attention_heads": 5},
    ),
]
